// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ingress

import (
	"time"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/domain/envoy"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/runtime/cell"
	runtimeconfig "github.com/skep-operator/skep/runtime/config"
)

// Config is how Ingresses are served.
type Config struct {
	EnforceIngressHTTPS         bool          `flag:"enforce-ingress-https" usage:"Redirect plain requests to HTTPS for hosts with a certificate"`
	EnableIngressProxyProtocol  bool          `flag:"enable-ingress-proxy-protocol" usage:"Expect the PROXY protocol from clients of Ingresses"`
	IngressLBAnnotationPrefixes []string      `flag:"ingress-lb-annotation-prefixes" usage:"Prefixes of annotations and labels that Services of Ingresses inherit"`
	IngressSharedLBServiceName  string        `flag:"ingress-shared-lb-service-name" usage:"Service of the load balancer that Ingresses share"`
	IngressDefaultLBMode        string        `flag:"ingress-default-lb-mode" usage:"Load balancer of Ingresses without an annotation: dedicated or shared"`
	IngressJoinNamespaces       bool          `flag:"ingress-join-namespaces" usage:"Join the rules that several namespaces have for a host of the shared load balancer, and share ports of the nodes, as the original does; otherwise they are those of the oldest Ingress"`
	IngressDefaultTimeout       time.Duration `flag:"ingress-default-request-timeout" usage:"Timeout of requests of Ingresses without an annotation; 0 for none" min:"1ms" zero:"sets none"`
	IngressDefaultXFFTrusted    uint32        `flag:"ingress-default-xff-num-trusted-hops" usage:"Number of proxies in front whose X-Forwarded-For is trusted"`

	IngressUseRemoteAddress bool `flag:"ingress-use-remote-address" usage:"Take the address of a client from its connection; otherwise from the headers of a proxy in front"`

	IngressHostNetworkEnabled bool `flag:"-"` // an option of resources/envoy: other duties read it, too

	IngressHostNetworkNodeSelector string   `flag:"ingress-hostnetwork-nodelabelselector" usage:"Labels of the nodes that listen, as in a=b,c=d; empty for all nodes"`
	IngressHostNetworkPort         uint32   `flag:"ingress-hostnetwork-shared-listener-port" usage:"Port of the nodes for Ingresses that share a listener; 0 for 8080" max:"65535"`
	IngressHostNetworkHTTPPort     uint32   `flag:"ingress-hostnetwork-http-listener-port" usage:"The same for plain HTTP; 0 for --ingress-hostnetwork-shared-listener-port" max:"65535"`
	IngressHostNetworkHTTPSPort    uint32   `flag:"ingress-hostnetwork-https-listener-port" usage:"The same for HTTPS; 0 for --ingress-hostnetwork-shared-listener-port" max:"65535"`
	IngressHostNetworkPorts        []string `flag:"ingress-hostnetwork-ports" usage:"Ports of the nodes that Ingresses may ask for by their annotation; empty for all but those of components of the cluster"`
	IngressHostNetworkTLSPort      uint32   `flag:"ingress-hostnetwork-tls-passthrough-listener-port" usage:"The same for TLS that is passed through; 0 for --ingress-hostnetwork-shared-listener-port" max:"65535"`
}

var defaultConfig = Config{
	EnforceIngressHTTPS:         true,
	IngressUseRemoteAddress:     true,
	IngressLBAnnotationPrefixes: []string{"lbipam.cilium.io", "service.beta.kubernetes.io", "service.kubernetes.io", "cloud.google.com"},
	IngressSharedLBServiceName:  "cilium-ingress", IngressDefaultLBMode: dedicatedMode,
}

// Derive sets the option that other duties read, too.
func (c *Config) Derive(values *runtimeconfig.Values) {
	c.IngressHostNetworkEnabled = envoyres.ConfigOf(values).IngressHostNetworkEnabled
}

// Validate implements the check of config structs.
func (c Config) Validate() error {
	switch {
	case c.IngressSharedLBServiceName == "":
		return cell.Invalid("ingress-shared-lb-service-name", "must be the name of a Service")
	case c.IngressDefaultLBMode != dedicatedMode && c.IngressDefaultLBMode != sharedMode:
		return cell.Questionable("ingress-default-lb-mode", "should be dedicated or shared; it means shared")
	}
	return nil
}

// defaultPort is the port on the network of nodes.
const defaultPort = 8080

// ports are those of the listeners.
type ports struct{ http, https, passthrough uint32 }

var loadBalancerPorts = ports{80, 443, 443}

// sharedPorts are those of the shared listener.
func (c Config) sharedPorts() ports {
	if !c.IngressHostNetworkEnabled {
		return loadBalancerPorts
	}
	or := func(port uint32) uint32 {
		switch {
		case port != 0:
			return port
		case c.IngressHostNetworkPort != 0:
			return c.IngressHostNetworkPort
		}
		return defaultPort
	}
	return ports{or(c.IngressHostNetworkHTTPPort), or(c.IngressHostNetworkHTTPSPort), or(c.IngressHostNetworkTLSPort)}
}

// hostNetwork is the network of the listeners, nil for that of agents.
func (c Config) hostNetwork(shared cluster.Config) *envoy.HostNetwork {
	if !c.IngressHostNetworkEnabled {
		return nil
	}
	return &envoy.HostNetwork{
		IPv4: shared.EnableIPv4, IPv6: shared.EnableIPv6, NodeSelector: envoy.ParseNodeSelector(c.IngressHostNetworkNodeSelector),
	}
}
