// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package route

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/resources/domain/envoy"
)

// backends yields the references of an HTTPRoute to backends.
func (r *HTTP) backends(yield func(gatewayv1.BackendObjectReference) bool) {
	for _, rule := range r.Spec.Rules {
		for _, b := range rule.BackendRefs {
			if !yield(b.BackendObjectReference) {
				return
			}
		}
		for _, f := range rule.Filters {
			if f.RequestMirror != nil && !yield(f.RequestMirror.BackendRef) || f.ExternalAuth != nil && !yield(f.ExternalAuth.BackendRef) {
				return
			}
		}
	}
}

// asksServer reports whether a rule has a server asked about its requests.
func (r *HTTP) asksServer() bool {
	return slices.ContainsFunc(r.Spec.Rules, func(rule gatewayv1.HTTPRouteRule) bool {
		return slices.ContainsFunc(rule.Filters, func(f gatewayv1.HTTPRouteFilter) bool { return f.ExternalAuth != nil })
	})
}

func (r *HTTP) compile(c *compiler) {
	c.rules = len(r.Spec.Rules)
	for i := range r.Spec.Rules {
		to := rule{Route: envoy.Route{Source: c.route.Source()}, matches: httpMatches(r.Spec.Rules[i].Matches)}
		why, isUnknown := c.undecoded(i)
		if isUnknown {
			c.refuse(c.route.DecodeError())
			return
		}
		if why == "" {
			why = c.httpRule(&to.Route, &r.Spec.Rules[i])
		}
		if why != "" {
			c.drop(i, to, why)
			continue
		}
		c.add(i, to)
	}
}

// httpRule sets all of a rule but what it matches. It returns why the rule cannot be served, or "".
func (c *compiler) httpRule(to *envoy.Route, from *gatewayv1.HTTPRouteRule) (why string) {
	for _, f := range from.Filters {
		if why := c.httpFilter(to, f); why != "" {
			return why
		}
	}
	for _, ref := range from.BackendRefs {
		var edits envoy.Backend
		for _, f := range ref.Filters {
			switch f.Type {
			case gatewayv1.HTTPRouteFilterRequestHeaderModifier:
				addEdit(&edits.RequestHeaders, f.RequestHeaderModifier)
			case gatewayv1.HTTPRouteFilterResponseHeaderModifier:
				addEdit(&edits.ResponseHeaders, f.ResponseHeaderModifier)
			default:
				return fmt.Sprintf("the filter %s is not supported for a backend", f.Type)
			}
		}
		to.Lost += c.backend(&to.Backends, ref.BackendRef, func(b *envoy.Backend) {
			b.RequestHeaders, b.ResponseHeaders = edits.RequestHeaders, edits.ResponseHeaders
		})
	}
	if from.Timeouts != nil {
		to.RequestTimeout, to.BackendTimeout = duration(from.Timeouts.Request), duration(from.Timeouts.BackendRequest)
	}
	if from.SessionPersistence != nil {
		return "session persistence is not supported"
	}
	to.Retry = retryOf(from.Retry)
	return ""
}

// httpFilter adds a filter. It returns why it cannot, or "".
func (c *compiler) httpFilter(to *envoy.Route, f gatewayv1.HTTPRouteFilter) (why string) {
	switch {
	case f.RequestHeaderModifier != nil:
		addEdit(&to.RequestHeaders, f.RequestHeaderModifier)
	case f.ResponseHeaderModifier != nil:
		addEdit(&to.ResponseHeaders, f.ResponseHeaderModifier)
	case f.RequestMirror != nil:
		c.addMirror(&to.Mirrors, f.RequestMirror)
	case f.RequestRedirect != nil:
		to.Redirect = redirectOf(f.RequestRedirect)
	case f.URLRewrite != nil:
		to.Rewrite = &envoy.Rewrite{}
		if f.URLRewrite.Hostname != nil {
			to.Rewrite.Host = string(*f.URLRewrite.Hostname)
		}
		to.Rewrite.PrefixPath, to.Rewrite.CompletePath = pathOf(f.URLRewrite.Path)
	case f.ExternalAuth != nil:
		return c.addAuth(to, f.ExternalAuth)
	case f.CORS != nil:
		to.CORS = corsOf(f.CORS)
	default:
		return fmt.Sprintf("the filter %s is not supported", f.Type)
	}
	return ""
}

// addAuth has a server asked about the requests of a rule (GW-57). If the reference to it is not valid, none of them is served.
func (c *compiler) addAuth(to *envoy.Route, f *gatewayv1.HTTPExternalAuthFilter) (why string) {
	switch {
	case to.Auth != nil:
		return "there are two filters ExternalAuth"
	case !c.lookup.asksServers():
		return "the filter ExternalAuth needs agents of 1.20 on all nodes"
	}
	to.Auth = &envoy.ExternalAuth{GRPC: f.ExternalAuthProtocol == gatewayv1.HTTPRouteExternalAuthGRPCProtocol}
	server, ok := c.resolve(f.BackendRef)
	if !ok {
		return ""
	}
	to.Auth.Server = server
	if f.ForwardBody != nil {
		to.Auth.MaxBody = f.ForwardBody.MaxSize
	}
	if g := f.GRPCAuthConfig; g != nil && to.Auth.GRPC {
		to.Auth.RequestHeaders = g.AllowedRequestHeaders
	}
	if h := f.HTTPAuthConfig; h != nil && !to.Auth.GRPC {
		to.Auth.Path, to.Auth.RequestHeaders, to.Auth.ResponseHeaders = h.Path, h.AllowedRequestHeaders, h.AllowedResponseHeaders
	}
	return ""
}

func redirectOf(f *gatewayv1.HTTPRequestRedirectFilter) *envoy.Redirect {
	to := &envoy.Redirect{}
	if f.Scheme != nil {
		to.Scheme = strings.ToLower(*f.Scheme)
	}
	if f.Hostname != nil {
		to.Host = string(*f.Hostname)
	}
	if f.Port != nil {
		to.Port = uint32(max(0, *f.Port))
	}
	if f.StatusCode != nil {
		to.Code = *f.StatusCode
	} else {
		to.Code = 302
	}
	to.PrefixPath, to.CompletePath = pathOf(f.Path)
	return to
}

func pathOf(p *gatewayv1.HTTPPathModifier) (prefix, complete *string) {
	if p == nil {
		return nil, nil
	}
	return p.ReplacePrefixMatch, p.ReplaceFullPath
}

// duration is nil for one that is not set or cannot be parsed.
func duration(text *gatewayv1.Duration) *time.Duration {
	if text == nil {
		return nil
	}
	d, err := time.ParseDuration(string(*text))
	if err != nil || d < 0 {
		return nil
	}
	return &d
}

func retryOf(r *gatewayv1.HTTPRouteRetry) *envoy.Retry {
	if r == nil {
		return nil
	}
	to := &envoy.Retry{}
	if r.Attempts != nil {
		to.Attempts = new(uint32(min(max(0, *r.Attempts), math.MaxInt32))) // the definition has no bound
	}
	for _, code := range r.Codes {
		to.Codes = append(to.Codes, uint32(code))
	}
	if d := duration(r.Backoff); d != nil {
		to.Backoff = *d
	}
	return to
}

// httpMatches are what a rule matches: every path if it does not say.
func httpMatches(all []gatewayv1.HTTPRouteMatch) (found []envoy.Route) {
	for _, m := range all {
		to := envoy.Route{Path: httpPath(m.Path)}
		for _, h := range m.Headers { // names of headers have no case
			to.Headers = named(to.Headers, strings.ToLower(string(h.Name)), h.Type != nil && *h.Type == gatewayv1.HeaderMatchRegularExpression, h.Value)
		}
		for _, q := range m.QueryParams {
			to.Queries = named(to.Queries, string(q.Name), q.Type != nil && *q.Type == gatewayv1.QueryParamMatchRegularExpression, q.Value)
		}
		if m.Method != nil {
			to.Method = string(*m.Method)
		}
		found = append(found, to)
	}
	if len(found) == 0 {
		found = []envoy.Route{{Path: httpPath(nil)}}
	}
	return found
}

func httpPath(p *gatewayv1.HTTPPathMatch) envoy.Match {
	m := envoy.Match{Kind: envoy.Prefix, Value: "/"}
	if p == nil {
		return m
	}
	if p.Value != nil {
		m.Value = *p.Value
	}
	if p.Type != nil {
		switch *p.Type {
		case gatewayv1.PathMatchExact:
			m.Kind = envoy.Exact
		case gatewayv1.PathMatchRegularExpression:
			m.Kind = envoy.Regex
		}
	}
	return m
}
