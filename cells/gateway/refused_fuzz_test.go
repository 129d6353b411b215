// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/domain/envoy/envoytest"
	"github.com/skep-operator/skep/resources/domain/envoy/refusetest"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// hostile makes rules with texts that Envoy refuses here and there.
type hostile struct{ refusetest.Source }

// now and then.
func (h hostile) now() bool { return h.IntN(6) == 0 }

func (h hostile) header() gatewayv1.HTTPHeader {
	return gatewayv1.HTTPHeader{Name: gatewayv1.HTTPHeaderName(h.name()), Value: h.value()}
}

// name and value are mostly good ones, so that not every rule is refused.
func (h hostile) name() string {
	if h.IntN(3) > 0 {
		return "x-good"
	}
	return h.Name()
}

func (h hostile) value() string {
	if h.IntN(3) == 0 {
		return "good"
	}
	return h.Value()
}

func (h hostile) edit() *gatewayv1.HTTPHeaderFilter {
	f := &gatewayv1.HTTPHeaderFilter{}
	for range 1 + h.IntN(2) {
		switch h.IntN(3) {
		case 0:
			f.Add = append(f.Add, h.header())
		case 1:
			f.Set = append(f.Set, h.header())
		default:
			f.Remove = append(f.Remove, h.name())
		}
	}
	return f
}

func (h hostile) modifier() *gatewayv1.HTTPPathModifier {
	text := h.Path()
	if h.IntN(2) == 0 {
		return &gatewayv1.HTTPPathModifier{Type: gatewayv1.PrefixMatchHTTPPathModifier, ReplacePrefixMatch: &text}
	}
	return &gatewayv1.HTTPPathModifier{Type: gatewayv1.FullPathHTTPPathModifier, ReplaceFullPath: &text}
}

func list[T ~string](h hostile, text func() string) (all []T) {
	for range h.IntN(3) {
		all = append(all, T(text()))
	}
	return all
}

func (h hostile) filters() (all []gatewayv1.HTTPRouteFilter) {
	if h.now() {
		all = append(all, gatewayv1.HTTPRouteFilter{Type: gatewayv1.HTTPRouteFilterRequestHeaderModifier, RequestHeaderModifier: h.edit()})
	}
	if h.now() {
		all = append(all, gatewayv1.HTTPRouteFilter{Type: gatewayv1.HTTPRouteFilterResponseHeaderModifier, ResponseHeaderModifier: h.edit()})
	}
	if h.now() {
		f := &gatewayv1.HTTPURLRewriteFilter{Path: h.modifier()}
		if h.now() {
			f.Hostname = new(gatewayv1.PreciseHostname(h.Host()))
		}
		all = append(all, gatewayv1.HTTPRouteFilter{Type: gatewayv1.HTTPRouteFilterURLRewrite, URLRewrite: f})
	}
	if h.now() {
		f := &gatewayv1.HTTPRequestRedirectFilter{Path: h.modifier(), StatusCode: new(301 + h.IntN(9)), Port: new(gatewayv1.PortNumber(h.IntN(70_000)))}
		if h.now() {
			f.Hostname = new(gatewayv1.PreciseHostname(h.Host()))
		}
		if h.now() {
			f.Scheme = new(h.Value())
		}
		all = append(all, gatewayv1.HTTPRouteFilter{Type: gatewayv1.HTTPRouteFilterRequestRedirect, RequestRedirect: f})
	}
	if h.now() {
		f := &gatewayv1.HTTPRequestMirrorFilter{BackendRef: gatewayv1.BackendObjectReference{Name: "mirror", Port: new(gatewayv1.PortNumber(80))}}
		f.Fraction = &gatewayv1.Fraction{Numerator: int32(h.IntN(10) - 1), Denominator: new(int32(h.IntN(5)))}
		all = append(all, gatewayv1.HTTPRouteFilter{Type: gatewayv1.HTTPRouteFilterRequestMirror, RequestMirror: f})
	}
	if h.now() {
		f := &gatewayv1.HTTPCORSFilter{
			AllowOrigins: append(list[gatewayv1.CORSOrigin](h, h.Origin), "https://good"), AllowMethods: list[gatewayv1.HTTPMethodWithWildcard](h, h.name),
			AllowHeaders: list[gatewayv1.HTTPHeaderName](h, h.name), ExposeHeaders: list[gatewayv1.HTTPHeaderName](h, h.name),
			AllowCredentials: new(h.now()), MaxAge: int32(h.IntN(5) - 1),
		}
		all = append(all, gatewayv1.HTTPRouteFilter{Type: gatewayv1.HTTPRouteFilterCORS, CORS: f})
	}
	return all
}

// match matches the requests of a rule alone: by the header x-rule.
func (h hostile) match(rule int) gatewayv1.HTTPRouteMatch {
	m := gatewayv1.HTTPRouteMatch{Headers: []gatewayv1.HTTPHeaderMatch{{Name: "x-rule", Value: fmt.Sprint("rule-", rule)}}}
	kind, path := gatewayv1.PathMatchPathPrefix, "/good"
	switch h.IntN(6) {
	case 0:
		path = h.Path()
	case 1:
		kind, path = gatewayv1.PathMatchExact, h.Path()
	case 2:
		kind, path = gatewayv1.PathMatchRegularExpression, h.Expression()
	}
	m.Path = &gatewayv1.HTTPPathMatch{Type: &kind, Value: &path}
	if h.now() {
		m.Headers = append(m.Headers, gatewayv1.HTTPHeaderMatch{Name: gatewayv1.HTTPHeaderName(h.name()), Value: h.Expression(), Type: new(gatewayv1.HeaderMatchRegularExpression)})
	}
	if h.now() {
		m.QueryParams = append(m.QueryParams, gatewayv1.HTTPQueryParamMatch{Name: gatewayv1.HTTPHeaderName(h.name()), Value: h.Expression(), Type: new(gatewayv1.QueryParamMatchRegularExpression)})
	}
	if h.now() {
		m.Method = new(gatewayv1.HTTPMethod(h.name()))
	}
	return m
}

func (h hostile) backends(rule int) (all []gatewayv1.BackendRef) {
	for range h.IntN(4) {
		all = append(all, gatewayv1.BackendRef{
			BackendObjectReference: gatewayv1.BackendObjectReference{Name: gatewayv1.ObjectName(fmt.Sprint("s", rule)), Port: new(gatewayv1.PortNumber(80 + h.IntN(2)))},
			Weight:                 new(int32(h.IntN(4) - 1)),
		})
	}
	if h.now() {
		for i := range all { // more than 32 bits together
			all[i].Weight = new(int32(2_000_000_000))
		}
	}
	return all
}

func (h hostile) duration() *gatewayv1.Duration {
	texts := []string{"0s", "10s", "1ms", "99999h", "99999h99999h99999h99999h", "-1s", "soon", "", "1us", "1.5ms", "2562047h", "9999999999h"}
	return new(gatewayv1.Duration(texts[h.IntN(len(texts))]))
}

func (h hostile) httpRule(rule int) (r gatewayv1.HTTPRouteRule) {
	for range 1 + h.IntN(2) {
		r.Matches = append(r.Matches, h.match(rule))
	}
	r.Filters = h.filters()
	for _, ref := range h.backends(rule) {
		b := gatewayv1.HTTPBackendRef{BackendRef: ref}
		if h.now() {
			b.Filters = append(b.Filters, gatewayv1.HTTPRouteFilter{Type: gatewayv1.HTTPRouteFilterRequestHeaderModifier, RequestHeaderModifier: h.edit()})
		}
		if h.now() {
			b.Filters = append(b.Filters, gatewayv1.HTTPRouteFilter{Type: gatewayv1.HTTPRouteFilterResponseHeaderModifier, ResponseHeaderModifier: h.edit()})
		}
		r.BackendRefs = append(r.BackendRefs, b)
	}
	if h.now() {
		r.Timeouts = &gatewayv1.HTTPRouteTimeouts{Request: h.duration(), BackendRequest: h.duration()}
	}
	if h.now() {
		r.Retry = &gatewayv1.HTTPRouteRetry{Attempts: new(h.IntN(4) - 1), Backoff: h.duration(), Codes: []gatewayv1.HTTPRouteRetryStatusCode{gatewayv1.HTTPRouteRetryStatusCode(h.IntN(700) - 1)}}
	}
	return r
}

func (h hostile) grpcRule(rule int) (r gatewayv1.GRPCRouteRule) {
	m := gatewayv1.GRPCRouteMatch{Headers: []gatewayv1.GRPCHeaderMatch{{Name: "x-rule", Value: fmt.Sprint("rule-", rule)}}}
	if h.now() {
		m.Headers = append(m.Headers, gatewayv1.GRPCHeaderMatch{Name: gatewayv1.GRPCHeaderName(h.name()), Value: h.Expression(), Type: new(gatewayv1.GRPCHeaderMatchRegularExpression)})
	}
	switch h.IntN(4) {
	case 0:
		m.Method = &gatewayv1.GRPCMethodMatch{Service: new(strings.TrimPrefix(h.Path(), "/")), Method: new(strings.TrimPrefix(h.Path(), "/"))}
	case 1:
		m.Method = &gatewayv1.GRPCMethodMatch{Type: new(gatewayv1.GRPCMethodMatchRegularExpression), Service: new(h.Expression()), Method: new(h.Expression())}
	}
	r.Matches = []gatewayv1.GRPCRouteMatch{m}
	if h.now() {
		r.Filters = append(r.Filters, gatewayv1.GRPCRouteFilter{Type: gatewayv1.GRPCRouteFilterRequestHeaderModifier, RequestHeaderModifier: h.edit()})
	}
	for _, ref := range h.backends(rule) {
		b := gatewayv1.GRPCBackendRef{BackendRef: ref}
		if h.now() {
			b.Filters = append(b.Filters, gatewayv1.GRPCRouteFilter{Type: gatewayv1.GRPCRouteFilterResponseHeaderModifier, ResponseHeaderModifier: h.edit()})
		}
		r.BackendRefs = append(r.BackendRefs, b)
	}
	return r
}

// ENV-42, ENV-31, GW-23: whatever routes ask for, nothing is written that Envoy refuses; a rule that it would refuse is left out alone, is answered
// with 500, and is named in the condition of its route.
func TestNothingRefusedIsWritten(t *testing.T) {
	n := 250
	switch {
	case seedtest.Soak():
		n = 5_000
	case testing.Short() || seedtest.RaceEnabled:
		n = 60
	}
	const rules = 8
	c := objects{services: map[slim.Key]bool{{Namespace: "shop", Name: "mirror"}: true}}
	for i := range rules {
		c.services[slim.Key{Namespace: "shop", Name: fmt.Sprint("s", i)}] = true
	}
	g := parse[gateway](t, "{metadata: {name: edge, namespace: shop, uid: g}, spec: {listeners: [{name: a, port: 80, protocol: HTTP}, {name: b, port: 8080, protocol: HTTP, hostname: '*.example.com'}]}}")
	h := hostile{refusetest.Source{Rand: rand.New(rand.NewPCG(seedtest.Seed(t), 0))}}
	dropped := 0
	lookup := func(q route.Query) route.Answer {
		if q.About == route.AboutPrograms {
			return route.Answer{Number: 100}
		}
		return c.lookup(q)
	}
	for range n {
		const meta = "{metadata: {name: %s, namespace: shop, uid: %s}, spec: {parentRefs: [{name: edge}]}}"
		web := parse[route.HTTP](t, fmt.Sprintf(meta, "web", "web"))
		calls := parse[route.GRPC](t, fmt.Sprintf(meta, "calls", "calls"))
		for i := range rules / 2 {
			web.Spec.Rules = append(web.Spec.Rules, h.httpRule(i))
			calls.Spec.Rules = append(calls.Spec.Rules, h.grpcRule(rules/2+i))
		}
		plan := new(planner).plan(g, nil, []*route.Route{web.Route(), calls.Route()}, lookup)
		tr, err := new(envoy.Translator).Translate(plan.model, envoy.Options{Service: envoy.Name{Namespace: "shop", Name: "x"}, FirstWins: true, PortHosts: true, Checked: true})
		if err != nil {
			t.Fatal(err)
		}
		config, err := refusetest.Check(tr.Spec)
		if err := errors.Join(err, refusetest.CheckPrograms(config, 100)); err != nil {
			t.Fatal(err)
		}
		if len(tr.Problems) > 0 {
			t.Fatalf("what the translation leaves out is in no status: %v", tr.Problems)
		}
		for offset, all := range map[int][]string{0: route.Compile(web.Route(), lookup).Dropped, rules / 2: route.Compile(calls.Route(), lookup).Dropped} {
			dropped += len(all)
			for i := range rules / 2 {
				isDropped := slices.ContainsFunc(all, func(why string) bool { return strings.HasPrefix(why, fmt.Sprintf("Dropped Rule %d: ", i)) })
				checkRule(t, config, offset+i, isDropped)
			}
		}
		if t.Failed() {
			t.Fatalf("%q", route.Compile(web.Route(), lookup).Dropped)
		}
	}
	if most := n * rules; dropped < most/5 || dropped > most*4/5 {
		t.Errorf("%d of %d rules are refused", dropped, most)
	}
}

// checkRule checks that a rule is written, unless it is left out.
func checkRule(t *testing.T, c *envoytest.Config, rule int, isDropped bool) {
	t.Helper()
	for _, table := range c.Tables {
		for _, v := range table.VirtualHosts {
			found := false
			for _, r := range v.Routes {
				for _, m := range r.Match.Headers {
					if m.Name != "x-rule" || m.GetStringMatch().GetExact() != fmt.Sprint("rule-", rule) {
						continue
					}
					found = true
					if isDropped && r.GetDirectResponse().GetStatus() != 500 {
						t.Errorf("rule %d is left out, and has the route %v", rule, r)
					}
				}
			}
			if !found && !isDropped {
				t.Errorf("rule %d is written nowhere at %s, and the status of its route does not name it", rule, v.Name)
			}
		}
	}
}
