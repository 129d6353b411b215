// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/condition"
	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// compiler turns the rules of a route into routes of Envoy, without the host names.
type compiler struct {
	route *route
	ask   asker

	rules int // that the route has
	// routes are those of HTTP and gRPC, in their order.
	routes []envoy.Route
	// passthrough is the backends of each rule for TLS that is passed through, and terminated that for TLS that is not.
	passthrough, terminated [][]envoy.Backend
	// ports is the backends of a TCPRoute or a UDPRoute.
	ports []portBackend
	// dropped says which rules are left out, and why.
	dropped []string
}

func compile(r *route, ask asker) *compiler {
	c := &compiler{route: r, ask: ask}
	r.compile(c)
	return c
}

// drop leaves a rule out. Its requests are answered with 500: they are not those of a broader rule, which may lack what protects them.
func (c *compiler) drop(index int, r rule, why string) {
	c.dropped = append(c.dropped, fmt.Sprintf("Dropped Rule %d: %s", index, why))
	for _, m := range r.matches {
		m.Source, m.GRPC = r.Source, r.GRPC
		if m.Check() == nil {
			c.routes = append(c.routes, m)
		}
	}
}

// keepFirst leaves out all rules but the first one: all match the same connections.
func (c *compiler) keepFirst() {
	for i := 1; i < c.rules; i++ {
		c.dropped = append(c.dropped, fmt.Sprintf("Dropped Rule %d: it matches the connections of the first rule, which has them all", i))
	}
}

// partiallyInvalid is the condition of that name, nil if no rule is left out. If all are, the route is not accepted.
func (c *compiler) partiallyInvalid() *condition.Condition {
	if len(c.dropped) == 0 {
		return nil
	}
	return new(condition.True(gatewayv1.RouteReasonUnsupportedValue, strings.Join(c.dropped, "; ")))
}

// isDropped reports whether no rule is left.
func (c *compiler) isDropped() bool { return len(c.dropped) > 0 && len(c.dropped) == c.rules }

// rule is what the matches of a rule share.
type rule struct {
	envoy.Route
	matches []envoy.Route // with what they match alone
}

// add adds a route for each match of a rule, or none if Envoy would refuse one.
func (c *compiler) add(index int, r rule) {
	all := make([]envoy.Route, len(r.matches))
	for i, m := range r.matches {
		all[i] = r.Route
		all[i].Path, all[i].Headers, all[i].Queries, all[i].Method = m.Path, m.Headers, m.Queries, m.Method
		if err := checked(all[i], i).Check(); err != nil {
			c.drop(index, r, err.Error())
			return
		}
	}
	c.routes = append(c.routes, all...)
}

// checked is what is to be checked of the route for a match of a rule. What matches share is checked with the first of them: it may be
// nearly all of an object.
func checked(r envoy.Route, match int) *envoy.Route {
	if match > 0 {
		r.RequestHeaders, r.ResponseHeaders, r.Mirrors, r.CORS = nil, nil, nil, nil
		r.Backends = slices.Clone(r.Backends[:min(1, len(r.Backends))])
		for i := range r.Backends {
			r.Backends[i].RequestHeaders, r.Backends[i].ResponseHeaders = nil, nil
		}
	}
	return &r
}

// backend adds a backend with a weight. If the reference or a BackendTLSPolicy of it is not valid, it returns the weight that is lost.
func (c *compiler) backend(to *[]envoy.Backend, ref gatewayv1.BackendRef, edit func(*envoy.Backend)) (lost uint64) {
	weight := uint32(1)
	if ref.Weight != nil {
		weight = uint32(max(0, *ref.Weight))
	}
	b, ok := c.resolve(ref.BackendObjectReference)
	if !ok {
		return uint64(weight)
	}
	if ref.Weight != nil {
		b.Weight = &weight
	}
	edit(&b)
	*to = append(*to, b)
	return 0
}

// resolve returns the backend that a reference is to, with TLS if a BackendTLSPolicy asks for it. Without a valid one it is not to be
// spoken to.
func (c *compiler) resolve(ref gatewayv1.BackendObjectReference) (b envoy.Backend, ok bool) {
	b, v := resolve(c.route, ref, c.ask)
	if !v.OK {
		return b, false
	}
	a := c.ask.tls(slim.Key(b.Name), int32(*ref.Port))
	b.TLS = a.tls
	return b, a.ok || !a.exists
}

// addEdit adds the edits of a filter.
func addEdit(to **envoy.HeaderEdit, f *gatewayv1.HTTPHeaderFilter) {
	if f == nil {
		return
	}
	if *to == nil {
		*to = &envoy.HeaderEdit{}
	}
	for _, h := range f.Add {
		(*to).Add = append((*to).Add, envoy.Header{Name: string(h.Name), Value: h.Value})
	}
	for _, h := range f.Set {
		(*to).Set = append((*to).Set, envoy.Header{Name: string(h.Name), Value: h.Value})
	}
	(*to).Remove = append((*to).Remove, f.Remove...)
}

// addMirror adds a backend that gets copies of requests, unless the reference is not valid.
func (c *compiler) addMirror(to *[]envoy.Mirror, f *gatewayv1.HTTPRequestMirrorFilter) {
	if f == nil {
		return
	}
	b, ok := c.resolve(f.BackendRef)
	if !ok {
		return
	}
	m := envoy.Mirror{Backend: b}
	switch {
	case f.Percent != nil:
		m.Numerator, m.Denominator = uint32(max(0, *f.Percent)), 100
	case f.Fraction != nil:
		m.Numerator, m.Denominator = uint32(max(0, f.Fraction.Numerator)), 100
		if f.Fraction.Denominator != nil {
			m.Denominator = uint32(max(1, *f.Fraction.Denominator))
		}
	}
	*to = append(*to, m)
}

// named appends a match of a header or a query parameter, unless one of that name exists: the first one counts.
func named(all []envoy.NamedMatch, name string, isRegex bool, value string) []envoy.NamedMatch {
	if slices.ContainsFunc(all, func(m envoy.NamedMatch) bool { return m.Name == name }) {
		return all
	}
	kind := envoy.Exact
	if isRegex {
		kind = envoy.Regex
	}
	return append(all, envoy.NamedMatch{Name: name, Match: envoy.Match{Kind: kind, Value: value}})
}
