// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package route

import (
	"fmt"
	"regexp"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/resources/domain/envoy"
)

// backends yields the references of a GRPCRoute to backends.
func (r *GRPC) backends(yield func(gatewayv1.BackendObjectReference) bool) {
	for _, rule := range r.Spec.Rules {
		for _, b := range rule.BackendRefs {
			if !yield(b.BackendObjectReference) {
				return
			}
		}
		for _, f := range rule.Filters {
			if f.RequestMirror != nil && !yield(f.RequestMirror.BackendRef) {
				return
			}
		}
	}
}

func (r *GRPC) compile(c *compiler) {
	c.rules = len(r.Spec.Rules)
	for i := range r.Spec.Rules {
		to := rule{Route: envoy.Route{Source: c.route.Source(), GRPC: true}, matches: grpcMatches(r.Spec.Rules[i].Matches)}
		why, isUnknown := c.undecoded(i)
		if isUnknown {
			c.refuse(c.route.DecodeError())
			return
		}
		if why == "" {
			why = c.grpcRule(&to.Route, &r.Spec.Rules[i])
		}
		if why != "" {
			c.drop(i, to, why)
			continue
		}
		c.add(i, to)
	}
}

// grpcRule sets all of a rule but what it matches. It returns why the rule cannot be served, or "".
func (c *compiler) grpcRule(to *envoy.Route, from *gatewayv1.GRPCRouteRule) (why string) {
	for _, f := range from.Filters {
		switch {
		case f.RequestHeaderModifier != nil:
			addEdit(&to.RequestHeaders, f.RequestHeaderModifier)
		case f.ResponseHeaderModifier != nil:
			addEdit(&to.ResponseHeaders, f.ResponseHeaderModifier)
		case f.RequestMirror != nil:
			c.addMirror(&to.Mirrors, f.RequestMirror)
		default:
			return fmt.Sprintf("the filter %s is not supported", f.Type)
		}
	}
	for _, ref := range from.BackendRefs {
		var edits envoy.Backend
		for _, f := range ref.Filters {
			switch f.Type {
			case gatewayv1.GRPCRouteFilterRequestHeaderModifier:
				addEdit(&edits.RequestHeaders, f.RequestHeaderModifier)
			case gatewayv1.GRPCRouteFilterResponseHeaderModifier:
				addEdit(&edits.ResponseHeaders, f.ResponseHeaderModifier)
			default:
				return fmt.Sprintf("the filter %s is not supported for a backend", f.Type)
			}
		}
		to.Lost += c.backend(&to.Backends, ref.BackendRef, func(b *envoy.Backend) {
			b.RequestHeaders, b.ResponseHeaders = edits.RequestHeaders, edits.ResponseHeaders
		})
	}
	if from.SessionPersistence != nil {
		return "session persistence is not supported"
	}
	return ""
}

func grpcMatches(all []gatewayv1.GRPCRouteMatch) (found []envoy.Route) {
	for _, m := range all {
		to := envoy.Route{Path: grpcPath(m.Method)}
		for _, h := range m.Headers {
			to.Headers = named(to.Headers, strings.ToLower(string(h.Name)), h.Type != nil && *h.Type == gatewayv1.GRPCHeaderMatchRegularExpression, h.Value)
		}
		found = append(found, to)
	}
	if len(found) == 0 {
		found = []envoy.Route{{Path: grpcPath(nil)}}
	}
	return found
}

// grpcPath is the path of a method: /SERVICE/METHOD.
func grpcPath(m *gatewayv1.GRPCMethodMatch) envoy.Match {
	service, method := "", ""
	if m != nil && m.Service != nil {
		service = *m.Service
	}
	if m != nil && m.Method != nil {
		method = *m.Method
	}
	isRegex := m != nil && m.Type != nil && *m.Type == gatewayv1.GRPCMethodMatchRegularExpression
	switch {
	case service == "" && method == "":
		return envoy.Match{Kind: envoy.Prefix, Value: "/"}
	case isRegex && method == "":
		return envoy.Match{Kind: envoy.Regex, Value: "/" + group(service) + "/.+"}
	case isRegex && service == "":
		return envoy.Match{Kind: envoy.Regex, Value: "/.+/" + group(method)}
	case isRegex:
		return envoy.Match{Kind: envoy.Regex, Value: "/" + group(service) + "/" + group(method)}
	case method == "":
		return envoy.Match{Kind: envoy.Prefix, Value: "/" + service + "/"}
	case service == "":
		return envoy.Match{Kind: envoy.Regex, Value: "/.+/" + regexp.QuoteMeta(method)}
	}
	return envoy.Match{Kind: envoy.Exact, Value: "/" + service + "/" + method}
}

// group keeps the alternatives of an expression together.
func group(regex string) string {
	if strings.Contains(regex, "|") {
		return "(?:" + regex + ")"
	}
	return regex
}
