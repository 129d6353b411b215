// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/listener"
	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/domain/envoy"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// namePrefix is that of the names of what a Gateway consists of.
const namePrefix = "cilium-gateway-"

// Labels of what a Gateway consists of. Both have its name, shortened.
const (
	owningLabel  = "io.cilium.gateway/owning-gateway"
	gatewayLabel = "gateway.networking.k8s.io/gateway-name"
)

// Annotations of Services that agents, and the duty that assigns addresses, read.
const (
	addressesAnnotation    = "io.cilium/lb-ipam-ips"
	sourceRangesAnnotation = "service.cilium.io/src-ranges-policy"
)

// serviceKey is the Service of a Gateway, and its placeholder.
func serviceKey(of slim.Key) slim.Key {
	return slim.Key{Namespace: of.Namespace, Name: envoy.Shorten(namePrefix + of.Name)}
}

// configNames are those of the CiliumEnvoyConfig of a Gateway.
func configNames(of slim.Key) envoyres.ConfigNames {
	return envoyres.NewConfigNames(of.Namespace, namePrefix+of.Name)
}

func ownerOf(g *gateway) *metav1.OwnerReference {
	return &metav1.OwnerReference{
		APIVersion: gatewayv1.GroupVersion.String(), Kind: route.KindGateway, Name: g.Name, UID: g.UID.API(), Controller: new(true),
	}
}

// metadataOf are the labels and annotations that a Gateway asks for, for all that it consists of.
func metadataOf(g *gateway) (labels, annotations map[string]string) {
	labels, annotations = map[string]string{}, map[string]string{}
	if g.Spec.Infrastructure != nil {
		for key, value := range g.Spec.Infrastructure.Labels {
			labels[string(key)] = string(value)
		}
		for key, value := range g.Spec.Infrastructure.Annotations {
			annotations[string(key)] = string(value)
		}
	}
	labels[gatewayLabel] = envoy.Shorten(g.Name)
	return labels, annotations
}

// staticAddresses are the IP addresses that a Gateway asks for, and whether there are none of another type.
func staticAddresses(g *gateway) (ips []string, ok bool) {
	for _, a := range g.Spec.Addresses {
		if a.Type != nil && *a.Type != gatewayv1.IPAddressType {
			return nil, false
		}
		if a.Value != "" { // any address
			ips = append(ips, a.Value)
		}
	}
	return ips, true
}

// servicePort is the port of a Service for listeners.
func servicePort(p listener.ProtocolPort) corev1.ServicePort {
	name := "port-" + strconv.Itoa(int(p.Port))
	if p.Protocol == corev1.ProtocolUDP {
		name += "-udp"
	}
	return corev1.ServicePort{Name: name, Port: p.Port, Protocol: p.Protocol}
}

// desiredService is what the Service of a Gateway is to be.
type desiredService struct {
	ports       []listener.ProtocolPort
	hasBackends bool                    // of ports for TCP or UDP, which are in EndpointSlices
	weighted    bool                    // they have weights
	kept        []listener.ProtocolPort // that stay if they are there
	hostNetwork bool
	atNodes     bool          // on the network of the nodes there are ports of nodes, too
	policy      string        // the external traffic policy without a serviceConfig
	config      serviceConfig // of the class
}

// set sets what is written of the spec of a Service. What the API server allocates stays.
func (d desiredService) set(s *corev1.Service, isNew bool) {
	s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicy(d.policy)
	if d.config.Type == corev1.ServiceTypeNodePort {
		s.Spec.Type = corev1.ServiceTypeNodePort
	}
	if d.config.ExternalTrafficPolicy != "" {
		s.Spec.ExternalTrafficPolicy = d.config.ExternalTrafficPolicy
	}
	if d.hostNetwork {
		if s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeClusterIP, ""; d.atNodes {
			s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeNodePort, corev1.ServiceExternalTrafficPolicyCluster
		}
	}
	if len(d.config.IPFamilies) > 0 {
		s.Spec.IPFamilies = d.config.IPFamilies
	}
	if d.config.IPFamilyPolicy != nil {
		s.Spec.IPFamilyPolicy = d.config.IPFamilyPolicy
	}
	if d.config.TrafficDistribution != nil {
		s.Spec.TrafficDistribution = d.config.TrafficDistribution
	}
	s.Spec.LoadBalancerSourceRanges = d.config.LoadBalancerSourceRanges
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		if isNew {
			s.Spec.LoadBalancerClass = d.config.LoadBalancerClass
		}
		if d.config.AllocateLoadBalancerNodePorts != nil {
			s.Spec.AllocateLoadBalancerNodePorts = d.config.AllocateLoadBalancerNodePorts
		}
	} else { // the API server refuses them there
		s.Spec.LoadBalancerClass, s.Spec.AllocateLoadBalancerNodePorts, s.Spec.LoadBalancerSourceRanges = nil, nil, nil
	}
	s.Spec.Ports = d.servicePorts(s.Spec.Ports)
}

// servicePorts are the ports of the listeners. Those of listeners that are not served here stay if they are there: they may be served
// without us (GW-49).
func (d desiredService) servicePorts(has []corev1.ServicePort) (all []corev1.ServicePort) {
	missing := slices.Clone(d.ports)
	for _, p := range has {
		if i := slices.Index(missing, listener.ProtocolPort{Protocol: p.Protocol, Port: p.Port}); i >= 0 && p.Name == servicePort(missing[i]).Name {
			missing = slices.Delete(missing, i, i+1)
			all = append(all, p)
		} else if slices.Contains(d.kept, listener.ProtocolPort{Protocol: p.Protocol, Port: p.Port}) {
			all = append(all, p)
		}
	}
	for _, port := range missing {
		all = append(all, servicePort(port))
	}
	return all
}

// unserved are the ports of listeners for TCP and UDP that are not served here.
func unserved(all []*listener.Listener) (ports []listener.ProtocolPort) {
	for _, l := range all {
		if l.IsPort() && !l.Accepted.OK {
			ports = append(ports, l.ProtocolPort())
		}
	}
	return ports
}

// annotations are those of the Service, beside those that the Gateway asks for.
func (d desiredService) annotations(ips []string) map[string]string {
	all := map[string]string{}
	if len(ips) > 0 {
		all[addressesAnnotation] = strings.Join(ips, ",")
	}
	if d.weighted {
		all[balancerAnnotation] = balancerOfWeights
	}
	return all
}

// setRangesPolicy says whether source ranges are denied. Where they are not, what said so before goes: with it, all but the ranges
// would get in. What the Gateway asks for stays.
func (d desiredService) setRangesPolicy(s *corev1.Service, asked map[string]string) {
	if _, exists := asked[sourceRangesAnnotation]; exists {
		return
	}
	const deny = "deny"
	is := strings.EqualFold(s.Annotations[sourceRangesAnnotation], deny)
	switch denied := strings.EqualFold(d.config.LoadBalancerSourceRangesPolicy, deny); {
	case denied && !is:
		envoyres.AddMeta(s, nil, map[string]string{sourceRangesAnnotation: deny})
	case is && !denied:
		delete(s.Annotations, sourceRangesAnnotation)
	}
}

// addressesOf are the addresses of a Service as those of a Gateway.
func addressesOf(s *service) (all []gatewayv1.GatewayStatusAddress) {
	for _, a := range s.Status.LoadBalancer.Ingress {
		if a.IP != "" {
			all = append(all, gatewayv1.GatewayStatusAddress{Type: new(gatewayv1.IPAddressType), Value: a.IP})
		}
		if a.Hostname != "" {
			all = append(all, gatewayv1.GatewayStatusAddress{Type: new(gatewayv1.HostnameAddressType), Value: a.Hostname})
		}
	}
	return all
}
