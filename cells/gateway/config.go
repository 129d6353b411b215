// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/domain/envoy"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/runtime/cell"
	runtimeconfig "github.com/skep-operator/skep/runtime/config"
)

// Config is how Gateways are served.
type Config struct {
	EnableGatewayAPIProxyProtocol bool   `flag:"enable-gateway-api-proxy-protocol" usage:"Expect the PROXY protocol from clients of Gateways"`
	EnableGatewayAPIAppProtocol   bool   `flag:"enable-gateway-api-app-protocol" usage:"Speak to backends what the appProtocol of their Services says"`
	EnableGatewayAPIALPN          bool   `flag:"enable-gateway-api-alpn" usage:"Offer HTTP/2 and HTTP/1.1 to clients of HTTPS listeners"`
	GatewayAPIXFFNumTrustedHops   uint32 `flag:"gateway-api-xff-num-trusted-hops" usage:"Number of proxies in front whose X-Forwarded-For is trusted"`
	GatewayAPIUseRemoteAddress    bool   `flag:"gateway-api-use-remote-address" usage:"Take the address of a client from its connection; otherwise from the headers of a proxy in front"`
	GatewayAPIServiceExternalTP   string `flag:"gateway-api-service-externaltrafficpolicy" usage:"External traffic policy of the Services of Gateways: Cluster or Local"`

	// GatewayAPIJoinNamespaces is for a transition (GW-51, GW-55, GW-60).
	GatewayAPIJoinNamespaces bool `flag:"gateway-api-join-namespaces" usage:"Let namespaces share hosts of routes and of ListenerSets, and ports of the nodes, as the original does; otherwise these are the oldest object's"`

	GatewayAPIHostNetworkEnabled bool `flag:"-"` // an option of resources/envoy: other duties read it, too

	GatewayAPIHostNetworkNodeSelector string `flag:"gateway-api-hostnetwork-nodelabelselector" usage:"Labels of the nodes that listen, as in a=b,c=d; empty for all nodes"`
}

var defaultConfig = Config{GatewayAPIUseRemoteAddress: true, GatewayAPIServiceExternalTP: string(corev1.ServiceExternalTrafficPolicyCluster)}

// Derive sets the option that other duties read, too.
func (c *Config) Derive(values *runtimeconfig.Values) {
	c.GatewayAPIHostNetworkEnabled = envoyres.ConfigOf(values).GatewayAPIHostNetworkEnabled
}

// Validate implements the check of config structs.
func (c Config) Validate() error {
	switch corev1.ServiceExternalTrafficPolicy(c.GatewayAPIServiceExternalTP) {
	case corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal:
		return nil
	}
	return cell.Invalid("gateway-api-service-externaltrafficpolicy", "must be Cluster or Local")
}

// hostNetwork is the network of the listeners, nil for that of agents.
func (c Config) hostNetwork(shared cluster.Config) *envoy.HostNetwork {
	if !c.GatewayAPIHostNetworkEnabled {
		return nil
	}
	return &envoy.HostNetwork{
		IPv4: shared.EnableIPv4, IPv6: shared.EnableIPv6, NodeSelector: envoy.ParseNodeSelector(c.GatewayAPIHostNetworkNodeSelector),
	}
}
