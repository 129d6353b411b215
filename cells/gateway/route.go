// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// route is a route of any kind.
type route struct {
	*objectMeta
	kind      string
	parents   []gatewayv1.ParentReference
	hostnames []gatewayv1.Hostname
	status    []gatewayv1.RouteParentStatus
	// backends calls a function with the references to backends, until it returns false.
	backends func(func(gatewayv1.BackendObjectReference) bool)
	compile  func(*compiler)
	guarded  func() bool // nil where no route can have a server asked
}

// asks reports whether a route has a server asked about its requests.
func (r *route) asks() bool { return r.guarded != nil && r.guarded() }

func (r *httpRoute) route() *route {
	return &route{&r.objectMeta, kindHTTP, r.Spec.ParentRefs, r.Spec.Hostnames, r.Status.Parents, r.backends, r.compile, r.asks}
}

func (r *grpcRoute) route() *route {
	return &route{&r.objectMeta, kindGRPC, r.Spec.ParentRefs, r.Spec.Hostnames, r.Status.Parents, r.backends, r.compile, nil}
}

func (r *tlsRoute) route() *route {
	return &route{&r.objectMeta, kindTLS, r.Spec.ParentRefs, r.Spec.Hostnames, r.Status.Parents, r.backends, r.compile, nil}
}

func (r *tlsRouteAlpha) route() *route { return (*tlsRoute)(r).route() }

func (r *tcpRoute) route() *route {
	return &route{&r.objectMeta, kindTCP, r.Spec.ParentRefs, nil, r.Status.Parents, backendsOf(r.Spec.Rules, tcpBackends), compilePorts(r.Spec.Rules, tcpBackends), nil}
}

func (r *tcpRouteAlpha) route() *route { return (*tcpRoute)(r).route() }

func (r *udpRoute) route() *route {
	return &route{&r.objectMeta, kindUDP, r.Spec.ParentRefs, nil, r.Status.Parents, backendsOf(r.Spec.Rules, udpBackends), compilePorts(r.Spec.Rules, udpBackends), nil}
}

func (r *udpRouteAlpha) route() *route { return (*udpRoute)(r).route() }

// routeKinds are the kinds of routes.
var routeKinds = []string{kindHTTP, kindGRPC, kindTLS, kindTCP, kindUDP}

// isHTTP reports whether a route is one of requests.
func (r *route) isHTTP() bool { return r.kind == kindHTTP || r.kind == kindGRPC }

// protocol is that of the ports of backends, "" for any.
func (r *route) protocol() string {
	switch r.kind {
	case kindTCP:
		return string(corev1.ProtocolTCP)
	case kindUDP:
		return string(corev1.ProtocolUDP)
	}
	return ""
}

// name is the name of a route in a translation.
func (r *route) name() envoy.Name {
	return envoy.Name{Namespace: r.Namespace.String(), Name: r.Name}
}

// id is the key of a route among those of all kinds.
func (r *route) id() slim.Key { return keyOf(r.kind, r.Key()) }

// compareAge sorts routes: the older first, then by name.
func compareAge(a, b *route) int {
	return cmp.Or(compareObjects(a.objectMeta, b.objectMeta), strings.Compare(a.kind, b.kind))
}

// compareObjects sorts objects: the older first, then by name.
func compareObjects(a, b *objectMeta) int {
	return cmp.Or(
		cmp.Compare(a.CreationTimestamp, b.CreationTimestamp),
		strings.Compare(a.Namespace.String()+"/"+a.Name, b.Namespace.String()+"/"+b.Name),
	)
}

// parentKind is what a parent is: a Gateway, a ListenerSet, a Service, or "" for something else.
func parentKind(ref gatewayv1.ParentReference) string {
	group, kind := gatewayv1.Group(gatewayv1.GroupName), gatewayv1.Kind(kindGateway)
	if ref.Group != nil {
		group = *ref.Group
	}
	if ref.Kind != nil {
		kind = *ref.Kind
	}
	switch {
	case group == gatewayv1.GroupName && (kind == kindGateway || kind == kindListenerSet):
		return string(kind)
	case group == "" && kind == kindService:
		return kindService
	}
	return ""
}

// parentKey is the key of a parent of a route.
func parentKey(namespace string, ref gatewayv1.ParentReference) slim.Key {
	if ref.Namespace != nil {
		namespace = string(*ref.Namespace)
	}
	return slim.Key{Namespace: namespace, Name: string(ref.Name)}
}

// parentID is the key of a parent among those of all kinds. ok is false for one of a kind that is not served here.
func (r *route) parentID(ref gatewayv1.ParentReference) (id slim.Key, ok bool) {
	key := parentKey(r.Namespace.String(), ref)
	switch kind := parentKind(ref); kind {
	case "", kindGateway:
		return key, kind != ""
	default:
		return keyOf(kind, key), true
	}
}

// isParent reports whether a reference of a route is to an object.
func (r *route) isParent(ref gatewayv1.ParentReference, kind string, key slim.Key) bool {
	return parentKind(ref) == kind && parentKey(r.Namespace.String(), ref) == key
}
