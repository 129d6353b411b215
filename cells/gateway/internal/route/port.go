// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package route

import (
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
				c.Ports = append(c.Ports, b)
			}
		}
	}
}

// PortBackend is a port of a Service to which connections or datagrams go.
type PortBackend struct {
	Service slim.Key
	Port    int32
	Weight  *int32 // nil if the route does not say
}

// portBackend is what a reference is to. A Service that does not exist, or has no such port, is one without endpoints.
func (c *compiler) portBackend(ref gatewayv1.BackendRef) (b PortBackend, ok bool) {
	resolved, v := resolve(c.route, ref.BackendObjectReference, c.lookup)
	kind, key := backendOf(c.route, ref.BackendObjectReference)
	switch {
	case v.OK:
		return PortBackend{slim.Key{Namespace: resolved.Namespace, Name: resolved.Name.Name}, int32(*ref.Port), ref.Weight}, true
	case kind == KindService && v.Reason == string(gatewayv1.RouteReasonBackendNotFound):
		return PortBackend{key, int32(*ref.Port), ref.Weight}, true
	}
	return b, false
}
