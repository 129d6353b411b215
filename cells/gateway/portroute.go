// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/resources/stream/slim"
)

func tcpBackends(r gatewayv1.TCPRouteRule) []gatewayv1.BackendRef { return r.BackendRefs }
func udpBackends(r gatewayv1.UDPRouteRule) []gatewayv1.BackendRef { return r.BackendRefs }

// backendsOf yields the references of rules to backends.
func backendsOf[R any](rules []R, of func(R) []gatewayv1.BackendRef) func(func(gatewayv1.BackendObjectReference) bool) {
	return func(yield func(gatewayv1.BackendObjectReference) bool) {
		for _, rule := range rules {
			for _, b := range of(rule) {
				if !yield(b.BackendObjectReference) {
					return
				}
			}
		}
	}
}

// compilePorts takes the backends of the first rule: all rules match the same connections.
func compilePorts[R any](rules []R, of func(R) []gatewayv1.BackendRef) func(*compiler) {
	return func(c *compiler) {
		if c.rules = len(rules); c.rules == 0 {
			return
		}
		c.keepFirst()
		for _, ref := range of(rules[0]) {
			if b, ok := c.portBackend(ref); ok {
				c.ports = append(c.ports, b)
			}
		}
	}
}

// portBackend is a port of a Service to which connections or datagrams go.
type portBackend struct {
	service slim.Key
	port    int32
	weight  *int32
}

// portBackend is what a reference is to. A Service that does not exist, or has no such port, is one without endpoints.
func (c *compiler) portBackend(ref gatewayv1.BackendRef) (b portBackend, ok bool) {
	resolved, v := resolve(c.route, ref.BackendObjectReference, c.ask)
	kind, key := backendOf(c.route, ref.BackendObjectReference)
	switch {
	case v.OK:
		return portBackend{slim.Key{Namespace: resolved.Namespace, Name: resolved.Name.Name}, int32(*ref.Port), ref.Weight}, true
	case kind == kindService && v.Reason == string(gatewayv1.RouteReasonBackendNotFound):
		return portBackend{key, int32(*ref.Port), ref.Weight}, true
	}
	return b, false
}

// protocolPort is a port of TCP or UDP.
type protocolPort struct {
	protocol corev1.Protocol
	port     int32
}

func comparePorts(a, b protocolPort) int {
	return cmp.Or(cmp.Compare(a.port, b.port), cmp.Compare(a.protocol, b.protocol))
}

// protocolPort is the port of the Service for a listener.
func (l *listener) protocolPort() protocolPort {
	if l.of.Protocol == gatewayv1.UDPProtocolType {
		return protocolPort{corev1.ProtocolUDP, l.of.Port}
	}
	return protocolPort{corev1.ProtocolTCP, l.of.Port}
}

// isPort reports whether a listener is one of connections or datagrams, whatever they have.
func (l *listener) isPort() bool {
	return l.of.Protocol == gatewayv1.TCPProtocolType || l.of.Protocol == gatewayv1.UDPProtocolType
}

// portsOf are the ports of the listeners that are accepted, sorted.
func portsOf(all []*listener) (ports []protocolPort) {
	for _, l := range all {
		if l.accepted.OK {
			ports = append(ports, l.protocolPort())
		}
	}
	slices.SortFunc(ports, comparePorts)
	return slices.Compact(ports)
}
