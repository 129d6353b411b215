// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package route

import (
	"fmt"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/condition"
	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// Compiled is what a route is without the host names that it has where it is attached. It is not changed.
type Compiled struct {
	// Routes are those of HTTP and gRPC, in their order.
	Routes []envoy.Route
	// Passthrough is the backends of each rule for TLS that is passed through, and Terminated that for TLS that is not.
	Passthrough, Terminated [][]envoy.Backend
	// Ports is the backends of a TCPRoute or a UDPRoute.
	Ports []PortBackend
	DroppedRules
}

// DroppedRules are the rules of a route that are left out.
type DroppedRules struct {
	// Dropped says which ones, and why.
	Dropped []string
	// Unknown says that it is not known which requests or connections they are for: the route is cut, or their matches cannot be decoded.
	Unknown bool

	rules int // that the route has
}

// compiler turns the rules of a route into routes of Envoy.
type compiler struct {
	*Compiled
	route  *Route
	lookup Lookup
}

// Compile compiles a route. The result is the same as long as the route and what it asks are.
func Compile(r *Route, lookup Lookup) *Compiled {
	c := &compiler{Compiled: &Compiled{}, route: r, lookup: lookup}
	switch {
	case r.IsCut():
		c.refuse(r.CutError())
	case r.CannotDecode("spec.rules[]") || !r.IsHTTP() && r.CannotDecode("spec.rules"): // the list itself, or a rule for connections
		c.refuse(r.DecodeError())
	default:
		r.compile(c)
	}
	return c.Compiled
}

// refuse leaves out all rules of a route.
func (c *compiler) refuse(why error) {
	*c.Compiled = Compiled{DroppedRules: DroppedRules{Dropped: []string{"It is not served: " + why.Error()}, Unknown: true, rules: 1}}
}

// undecoded is what of a rule cannot be decoded, or "". isUnknown is true if its matches are among that: which requests it closes is not known then.
func (c *compiler) undecoded(rule int) (why string, isUnknown bool) {
	err := c.route.DecodeError()
	if err == nil {
		return "", false
	}
	path := fmt.Sprintf("spec.rules[%d]", rule)
	if !c.route.CannotDecode(path) {
		return "", false
	}
	return err.Error(), c.route.CannotDecode(path + ".matches")
}

// PartiallyInvalid is the condition of that name, nil if no rule is left out. If all are, the route is not accepted.
func (d DroppedRules) PartiallyInvalid() *condition.Condition {
	if len(d.Dropped) == 0 {
		return nil
	}
	return new(condition.True(gatewayv1.RouteReasonUnsupportedValue, strings.Join(d.Dropped, "; ")))
}

// IsDropped reports whether no rule is left.
func (d DroppedRules) IsDropped() bool { return len(d.Dropped) > 0 && len(d.Dropped) == d.rules }

// drop leaves a rule out. Its requests are answered with 500: they are not those of a broader rule, which may lack what protects them.
func (c *compiler) drop(index int, r rule, why string) {
	c.Dropped = append(c.Dropped, fmt.Sprintf("Dropped Rule %d: %s", index, why))
	for _, m := range r.matches {
		m.Source, m.GRPC = r.Source, r.GRPC
		if c.check(&m) == nil {
			c.Routes = append(c.Routes, m)
		}
	}
}

// keepFirst leaves out all rules but the first one: all match the same connections.
func (c *compiler) keepFirst() {
	for i := 1; i < c.rules; i++ {
		c.Dropped = append(c.Dropped, fmt.Sprintf("Dropped Rule %d: it matches the connections of the first rule, which has them all", i))
	}
}

// rule is what the matches of a rule share.
type rule struct {
	envoy.Route
	matches []envoy.Route // with what they match alone
}

// add adds a route for each match of a rule, or none if Envoy would refuse one, or one is too large.
func (c *compiler) add(index int, r rule) {
	all := make([]envoy.Route, len(r.matches))
	for i, m := range r.matches {
		all[i] = r.Route
		all[i].Path, all[i].Headers, all[i].Queries, all[i].Method = m.Path, m.Headers, m.Queries, m.Method
		if err := c.check(checked(all[i], i)); err != nil {
			c.drop(index, r, err.Error())
			return
		}
	}
	if largest := envoy.SizeOf(all, envoy.Options{}).Largest; largest > envoy.MostOfRoute {
		c.drop(index, r, fmt.Sprintf("what is written for one match of it has %d bytes, and %d are the most", largest, envoy.MostOfRoute))
		return
	}
	c.Routes = append(c.Routes, all...)
}

// check returns why Envoy refuses a route.
func (c *compiler) check(r *envoy.Route) error {
	mostProgram := int64(0)
	if r.HasRegexes() {
		mostProgram = c.lookup.mostProgram()
	}
	return r.Check(mostProgram)
}

// checked is what is to be checked of the route for a match of a rule. What matches share is checked with the first of them: it may be
// nearly all of an object.
func checked(r envoy.Route, match int) *envoy.Route {
	if match > 0 {
		r.RequestHeaders, r.ResponseHeaders, r.Mirrors, r.CORS, r.Retry, r.Auth = nil, nil, nil, nil, nil, nil
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
	b, v := resolve(c.route, ref, c.lookup)
	if !v.OK {
		return b, false
	}
	a := c.lookup.tls(slim.Key(b.Name), int32(*ref.Port))
	b.TLS = a.TLS
	return b, !a.losesBackend()
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
