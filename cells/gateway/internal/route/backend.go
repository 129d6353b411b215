// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package route

import (
	"fmt"
	"slices"
	"strconv"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/condition"
	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/stream/slim"
)

var validRefs = condition.True(gatewayv1.RouteReasonResolvedRefs, "Service reference is valid")

func unresolved(reason gatewayv1.RouteConditionReason, format string, args ...any) condition.Condition {
	return condition.False(reason, fmt.Sprintf(format, args...))
}

// resolve returns the backend that a route refers to, or why there is none.
func resolve(r *Route, ref gatewayv1.BackendObjectReference, lookup Lookup) (envoy.Backend, condition.Condition) {
	var none envoy.Backend
	kind, key := backendOf(r, ref)
	switch {
	case !lookup.Granted(r.Kind, r.Namespace.String(), kind, key):
		return none, unresolved(gatewayv1.RouteReasonRefNotPermitted, "Cross namespace references are not allowed")
	case kind != KindService && kind != KindImport:
		return none, unresolved(gatewayv1.RouteReasonInvalidKind, "Unsupported backend kind %s", kind)
	case ref.Port == nil:
		return none, unresolved(gatewayv1.RouteReasonInvalidKind, "Must have port for backend object reference")
	}
	if kind == KindImport {
		a := lookup(Query{About: AboutImport, Key: key})
		switch {
		case a.NoCRD:
			return none, unresolved(gatewayv1.RouteReasonBackendNotFound, "Attempt to reference a ServiceImport backend while the corresponding CRD is not installed")
		case !a.Exists:
			return none, unresolved(gatewayv1.RouteReasonBackendNotFound, "ServiceImport %q not found", key.Name)
		case a.Target.Name == "":
			return none, unresolved(gatewayv1.RouteReasonBackendNotFound, "ServiceImport %q has no annotation %s", key.Name, DerivedAnnotation)
		}
		key = a.Target
	}
	a := lookup.port(key, int32(*ref.Port), r.protocol())
	switch {
	case !a.Exists:
		return none, unresolved(gatewayv1.RouteReasonBackendNotFound, "Service %q not found", key.Name)
	case !a.OK:
		return none, unresolved(gatewayv1.RouteReasonBackendNotFound, "Service %q has no port %d", key.Name, *ref.Port)
	}
	return envoy.Backend{
		Name: envoy.Name{Namespace: key.Namespace, Name: key.Name}, Port: strconv.Itoa(int(*ref.Port)), AppProtocol: a.AppProtocol,
	}, validRefs
}

// backendOf is the kind and the key of what a route refers to. The kind of another group is with its group.
func backendOf(r *Route, ref gatewayv1.BackendObjectReference) (kind string, key slim.Key) {
	group, kind, namespace := "", KindService, r.Namespace.String()
	if ref.Group != nil {
		group = string(*ref.Group)
	}
	if ref.Kind != nil {
		kind = string(*ref.Kind)
	}
	if ref.Namespace != nil {
		namespace = string(*ref.Namespace)
	}
	key = slim.Key{Namespace: namespace, Name: string(ref.Name)}
	if known := kind == KindService && group == "" || kind == KindImport && group == ImportGroup; !known && group != "" {
		kind = group + "/" + kind
	}
	return kind, key
}

// ResolveRefs decides about all references of a route to backends: the first that is not valid is the one that is reported.
func (r *Route) ResolveRefs(lookup Lookup) condition.Condition {
	all := validRefs
	r.backends(func(ref gatewayv1.BackendObjectReference) bool {
		_, v := resolve(r, ref, lookup)
		if !v.OK {
			all = v
		}
		return v.OK
	})
	return all
}

// Reaches reports whether a route has a valid backend of one of the Services.
func (r *Route) Reaches(services []slim.Key, lookup Lookup) (found bool) {
	r.backends(func(ref gatewayv1.BackendObjectReference) bool {
		b, v := resolve(r, ref, lookup)
		found = v.OK && slices.Contains(services, slim.Key(b.Name))
		return !found
	})
	return found
}

// AnyImport is the key of all ServiceImports.
var AnyImport = slim.Key{Name: KindImport + "/"}

// Targets are the keys of what a route refers to as backends, with AnyImport if a ServiceImport is among them.
func (r *Route) Targets() (keys []slim.Key) {
	r.backends(func(ref gatewayv1.BackendObjectReference) bool {
		kind, key := backendOf(r, ref)
		keys = append(keys, KeyOf(kind, key))
		if kind == KindImport {
			keys = append(keys, AnyImport)
		}
		return true
	})
	return keys
}
