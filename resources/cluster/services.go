// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

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
