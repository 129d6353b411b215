// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package route

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// Route is a route of any kind. It is not changed.
type Route struct {
	*ObjectMeta
	Kind      string
	Parents   []gatewayv1.ParentReference
	Hostnames []gatewayv1.Hostname
	Status    []gatewayv1.RouteParentStatus
	// backends calls a function with the references to backends, until it returns false.
	backends func(func(gatewayv1.BackendObjectReference) bool)
	compile  func(*compiler)
	guarded  func() bool // nil where no route can have a server asked
}

// Route is the route, as one of any kind.
func (r *HTTP) Route() *Route {
	return &Route{&r.ObjectMeta, KindHTTP, r.Spec.ParentRefs, r.Spec.Hostnames, r.Status.Parents, r.backends, r.compile, r.asksServer}
}

// Route is the route, as one of any kind.
func (r *GRPC) Route() *Route {
	return &Route{&r.ObjectMeta, KindGRPC, r.Spec.ParentRefs, r.Spec.Hostnames, r.Status.Parents, r.backends, r.compile, nil}
}

// Route is the route, as one of any kind.
func (r *TLS) Route() *Route {
	return &Route{&r.ObjectMeta, KindTLS, r.Spec.ParentRefs, r.Spec.Hostnames, r.Status.Parents, r.backends, r.compile, nil}
}

// Route is the route, as one of any kind.
func (r *TCP) Route() *Route {
	return &Route{&r.ObjectMeta, KindTCP, r.Spec.ParentRefs, nil, r.Status.Parents, backendsOf(r.Spec.Rules, tcpBackends), compilePorts(r.Spec.Rules, tcpBackends), nil}
}

// Route is the route, as one of any kind.
func (r *UDP) Route() *Route {
	return &Route{&r.ObjectMeta, KindUDP, r.Spec.ParentRefs, nil, r.Status.Parents, backendsOf(r.Spec.Rules, udpBackends), compilePorts(r.Spec.Rules, udpBackends), nil}
}

// Route is the route, as one of any kind.
func (r *TLSAlpha) Route() *Route { return (*TLS)(r).Route() }

// Route is the route, as one of any kind.
func (r *TCPAlpha) Route() *Route { return (*TCP)(r).Route() }

// Route is the route, as one of any kind.
func (r *UDPAlpha) Route() *Route { return (*UDP)(r).Route() }

// AsksServer reports whether a route has a server asked about its requests.
func (r *Route) AsksServer() bool { return r.guarded != nil && r.guarded() }

// IsHTTP reports whether a route is one of requests.
func (r *Route) IsHTTP() bool { return r.Kind == KindHTTP || r.Kind == KindGRPC }

// protocol is that of the ports of backends.
func (r *Route) protocol() corev1.Protocol {
	if r.Kind == KindUDP {
		return corev1.ProtocolUDP
	}
	return corev1.ProtocolTCP
}

// Source is the name of a route in a translation.
func (r *Route) Source() envoy.Name {
	return envoy.Name{Namespace: r.Namespace.String(), Name: r.Name}
}

// ID is the key of a route among those of all kinds.
func (r *Route) ID() slim.Key { return KeyOf(r.Kind, r.Key()) }

// KeyOf is the key of an object among those of all kinds.
func KeyOf(kind string, key slim.Key) slim.Key {
	return slim.Key{Namespace: key.Namespace, Name: kind + "/" + key.Name}
}

// CompareAge sorts routes: the older first, then by name.
func CompareAge(a, b *Route) int {
	return cmp.Or(CompareObjects(a.ObjectMeta, b.ObjectMeta), strings.Compare(a.Kind, b.Kind))
}

// CompareObjects sorts objects: the older first, then by name.
func CompareObjects(a, b *ObjectMeta) int {
	return cmp.Or(
		cmp.Compare(a.CreationTimestamp, b.CreationTimestamp),
		strings.Compare(a.Namespace.String()+"/"+a.Name, b.Namespace.String()+"/"+b.Name),
	)
}
