// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import "github.com/skep-operator/skep/resources/cluster/release"

// The values of --default-lb-service-ipam: what assigns addresses to LoadBalancer Services without a class.
const (
	LBIPAM   = "lbipam"
	NodeIPAM = "nodeipam"
	NoLBIPAM = "none"
)

// serviceProxyName is the label of Services that another proxy than the default one serves.
const serviceProxyName = "service.kubernetes.io/service-proxy-name"

// ServiceSelector is the label selector of the Services that duties look at.
func (c Config) ServiceSelector() string {
	if c.K8sServiceProxyName == "" {
		return "!" + serviceProxyName
	}
	return serviceProxyName + "=" + c.K8sServiceProxyName
}

// NodeIPAM reports whether the operator assigns addresses of nodes to Services.
func (c Config) NodeIPAM() bool { return c.EnableNodeIPAM || c.DefaultLBServiceIPAM == NodeIPAM }

// The values of --clustermesh-service-v2.
const (
	preferServices = "prefer-legacy"
	preferSlices   = "prefer-endpointslice"
	onlySlices     = "only-endpointslice"
)

// ExportsServices reports whether exported Services have keys of their own in the kvstore.
func (c Config) ExportsServices() bool { return c.ClusterMeshServiceV2 != onlySlices }

// ExportsSlices reports whether the EndpointSlices of exported Services have keys in the kvstore.
func (c Config) ExportsSlices() bool {
	return release.SlicesInKVStore.In(c.Release) || c.ClusterMeshServiceV2 == preferSlices || c.ClusterMeshServiceV2 == onlySlices
}
