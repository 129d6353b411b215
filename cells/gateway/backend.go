// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
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
func resolve(r *route, ref gatewayv1.BackendObjectReference, ask asker) (envoy.Backend, condition.Condition) {
	var none envoy.Backend
	kind, key := backendOf(r, ref)
	switch {
	case !ask.granted(r.kind, r.Namespace.String(), kind, key):
		return none, unresolved(gatewayv1.RouteReasonRefNotPermitted, "Cross namespace references are not allowed")
	case kind != kindService && kind != kindImport:
		return none, unresolved(gatewayv1.RouteReasonInvalidKind, "Unsupported backend kind %s", kind)
	case ref.Port == nil:
		return none, unresolved(gatewayv1.RouteReasonInvalidKind, "Must have port for backend object reference")
	}
	if kind == kindImport {
		a := ask(question{about: aboutImport, key: key})
		switch {
		case a.noCRD:
			return none, unresolved(gatewayv1.RouteReasonBackendNotFound, "Attempt to reference a ServiceImport backend while the corresponding CRD is not installed")
		case !a.exists:
			return none, unresolved(gatewayv1.RouteReasonBackendNotFound, "ServiceImport %q not found", key.Name)
		case a.target.Name == "":
			return none, unresolved(gatewayv1.RouteReasonBackendNotFound, "ServiceImport %q has no annotation %s", key.Name, derivedAnnotation)
		}
		key = a.target
	}
	a := ask.port(key, int32(*ref.Port), r.protocol())
	switch {
	case !a.exists:
		return none, unresolved(gatewayv1.RouteReasonBackendNotFound, "Service %q not found", key.Name)
	case !a.ok:
		return none, unresolved(gatewayv1.RouteReasonBackendNotFound, "Service %q has no port %d", key.Name, *ref.Port)
	}
	return envoy.Backend{
		Name: envoy.Name{Namespace: key.Namespace, Name: key.Name}, Port: strconv.Itoa(int(*ref.Port)), AppProtocol: a.appProtocol,
	}, validRefs
}

// backendOf is the kind and the key of what a route refers to. The kind of another group is with its group.
func backendOf(r *route, ref gatewayv1.BackendObjectReference) (kind string, key slim.Key) {
	group, kind, namespace := "", kindService, r.Namespace.String()
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
	if known := kind == kindService && group == "" || kind == kindImport && group == importGroup; !known && group != "" {
		kind = group + "/" + kind
	}
	return kind, key
}

// resolveAll decides about all references of a route to backends: the first that is not valid is the one that is reported.
func resolveAll(r *route, ask asker) condition.Condition {
	all := validRefs
	r.backends(func(ref gatewayv1.BackendObjectReference) bool {
		_, v := resolve(r, ref, ask)
		if !v.OK {
			all = v
		}
		return v.OK
	})
	return all
}
