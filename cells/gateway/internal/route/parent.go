// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package route

import (
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// ParentKind is what a parent is: a Gateway, a ListenerSet, a Service, or "" for something else.
func ParentKind(ref gatewayv1.ParentReference) string {
	group, kind := gatewayv1.Group(gatewayv1.GroupName), gatewayv1.Kind(KindGateway)
	if ref.Group != nil {
		group = *ref.Group
	}
	if ref.Kind != nil {
		kind = *ref.Kind
	}
	switch {
	case group == gatewayv1.GroupName && (kind == KindGateway || kind == KindListenerSet):
		return string(kind)
	case group == "" && kind == KindService:
		return KindService
	}
	return ""
}

// ParentKey is the key of a parent of an object of a namespace.
func ParentKey(namespace string, ref gatewayv1.ParentReference) slim.Key {
	if ref.Namespace != nil {
		namespace = string(*ref.Namespace)
	}
	return slim.Key{Namespace: namespace, Name: string(ref.Name)}
}

// ParentID is the key of a parent among those of all kinds. ok is false for one of a kind that is not served here.
func (r *Route) ParentID(ref gatewayv1.ParentReference) (id slim.Key, ok bool) {
	key := ParentKey(r.Namespace.String(), ref)
	switch kind := ParentKind(ref); kind {
	case "", KindGateway:
		return key, kind != ""
	default:
		return KeyOf(kind, key), true
	}
}

// ParentKeys are the keys of the Gateways, ListenerSets and Services that a route refers to as its parents.
func (r *Route) ParentKeys() (keys []slim.Key) {
	for _, ref := range r.Parents {
		if id, ok := r.ParentID(ref); ok && !slices.Contains(keys, id) {
			keys = append(keys, id)
		}
	}
	return keys
}

// HasListenerSet reports whether a route refers to a ListenerSet as its parent.
func (r *Route) HasListenerSet() bool {
	return slices.ContainsFunc(r.Parents, func(ref gatewayv1.ParentReference) bool { return ParentKind(ref) == KindListenerSet })
}

// IsParent reports whether a reference of a route is to an object.
func (r *Route) IsParent(ref gatewayv1.ParentReference, kind string, key slim.Key) bool {
	return ParentKind(ref) == kind && ParentKey(r.Namespace.String(), ref) == key
}
