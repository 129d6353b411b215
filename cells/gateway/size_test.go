// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// heavy makes routes of which each is written in its own way.
type heavy struct{ *rand.Rand }

func (r heavy) pick(all ...string) string { return all[r.IntN(len(all))] }

// quoted are n texts of a format, with a number.
func quoted(n int, format string) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("%q", fmt.Sprintf(format, i)))
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// filters are those of a rule.
func (r heavy) filters() string {
	n := 1 + r.IntN(16)
	switch r.IntN(8) {
	case 0:
		return fmt.Sprintf("{type: CORS, cors: {allowOrigins: %s, allowHeaders: %s, exposeHeaders: %s}}",
			quoted(4*n, "https://"+strings.Repeat("o", 10*n)+"%d.example.com"), quoted(n, "x-%d"), quoted(n, "x-"+strings.Repeat("e", n)+"%d"))
	case 1:
		return fmt.Sprintf("{type: RequestRedirect, requestRedirect: {scheme: https, hostname: %s.example.com, path: {type: ReplacePrefixMatch, replacePrefixMatch: /%s}}}", strings.Repeat("h", n), strings.Repeat("p", 20*n))
	case 2:
		return fmt.Sprintf("{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x-a, value: %q}], remove: %s}}", strings.Repeat("v%", 50*n), quoted(n, "x-"+strings.Repeat("r", n*n)+"%d"))
	case 3:
		return fmt.Sprintf("{type: ResponseHeaderModifier, responseHeaderModifier: {add: [{name: x-b, value: %q}], remove: %s}}", strings.Repeat("v", 50*n), quoted(n, "x-%d"))
	case 4:
		return fmt.Sprintf("{type: URLRewrite, urlRewrite: {hostname: %s.example.com, path: {type: ReplaceFullPath, replaceFullPath: /%s}}}", strings.Repeat("h", n), strings.Repeat("p", 20*n))
	case 5:
		return fmt.Sprintf("{type: ExternalAuth, externalAuth: {protocol: HTTP, backendRef: {name: v1, port: 80}, http: {path: /%d, allowedHeaders: %s}}}", n%4, quoted(n, "x-%d"))
	}
	return ""
}

// route is a route with hosts of its own.
func (r heavy) route(t *testing.T, namespace string, i, second, matches int) *route.Route {
	t.Helper()
	var rules []string
	label := strings.Repeat(r.pick("h", "h", "hh.", "hhhhhhhh.h"), 1+r.IntN(12)) + "h"
	hosts := quoted(1+r.IntN(16), r.pick("", "", "", "*.")+label+fmt.Sprintf("%%d.r%d.%s.test", i, namespace))
	for rule := range 1 + r.IntN(3) {
		var paths []string
		for m := range 1 + r.IntN(matches) {
			paths = append(paths, fmt.Sprintf("{path: {type: Exact, value: /%d/%d}}", rule, m))
		}
		filters := r.filters()
		backends := ", backendRefs: [{name: v1, port: 80}]"
		if strings.Contains(filters, "Redirect") {
			backends = ""
		}
		rules = append(rules, fmt.Sprintf("{filters: [%s], matches: [%s]%s}", filters, strings.Join(paths, ", "), backends))
	}
	return parse[route.HTTP](t, fmt.Sprintf(
		"{metadata: {name: r%03d, namespace: %s, uid: %s-%d, creationTimestamp: \"2026-01-01T00:00:%02dZ\"}, spec: {parentRefs: [{name: edge, namespace: infra}], hostnames: %s, rules: [%s]}}",
		i, namespace, namespace, i, second, hosts, strings.Join(rules, ", "))).Route()
}

// twoPorts has plain listeners at two ports, so that wildcards are written twice.
const twoPorts = `{metadata: {name: edge, namespace: infra, uid: g}, spec: {allowedListeners: {namespaces: {from: All}}, listeners: [
{name: a, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}, {name: b, port: 8080, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}]}}`

func outOf(plan *gatewayPlan, namespace string) (ids []string) {
	return slices.DeleteFunc(leftOutOf(plan), func(id string) bool { return !strings.HasPrefix(id, namespace+"/") })
}

// GW-54, K3 of the contract's tenants.md: whatever a younger namespace adds, an older one that fits in half of a Gateway alone is served with all its routes.
func TestOlderThatFitsIsServed(t *testing.T) {
	n := 12
	switch {
	case seedtest.Soak():
		n = 1000
	case testing.Short() || seedtest.RaceEnabled:
		n = 3
	}
	r := heavy{rand.New(rand.NewPCG(seedtest.Seed(t), 5))}
	for i := range n {
		text := []string{sharedByAll, twoPorts}[r.IntN(2)]
		var older []*route.Route
		for matches := 1 + r.IntN(20); ; {
			more := append(slices.Clone(older), r.route(t, "aa", len(older), 1, matches))
			alone := newPackedGateway(t)
			alone.g = parse[gateway](t, text)
			if plan, _ := alone.pack(nil, more...); len(leftOutOf(plan)) > 0 || alone.size > envoy.MaxSize*45/100 {
				break
			}
			older = more
		}
		all := slices.Clone(older)
		for j, matches := 0, 1+r.IntN(64); j < 10+r.IntN(60); j++ {
			all = append(all, r.route(t, "bb", j, 30, matches))
		}
		both := newPackedGateway(t)
		both.g = parse[gateway](t, text)
		plan, _ := both.pack(nil, all...)
		if out := outOf(plan, "aa"); len(out) > 0 {
			t.Errorf("%d: of %d routes %q are left out", i, len(older), out)
		}
		if sum := both.s.planner.sizes(plan, envoy.Options{FirstWins: true, PortHosts: true, PerPort: true}).without(both.s.planner.packing.out); sum < both.size*8/10 || sum > both.size*12/10 {
			t.Errorf("%d: %d bytes are written, and %d are expected", i, both.size, sum)
		}
	}
}

// GW-54: host names are written where their routes are left out, too. Too many of them are not: those of the namespace that has most.
func TestNamesOfRoutesArePacked(t *testing.T) {
	for _, listeners := range []int{1, 64} {
		var all []string
		for i := range listeners {
			all = append(all, fmt.Sprintf("{name: l%d, port: %d, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}", i, 80+i))
		}
		p := newPackedGateway(t)
		p.g = edgeOf(t, "{from: All}", "["+strings.Join(all, ", ")+"]")
		wide := parse[route.HTTP](t, `{metadata: {name: wide, namespace: aa, uid: wide, creationTimestamp: "2026-01-01T00:00:01Z"}, spec: {parentRefs: [{name: edge, namespace: infra}], rules: [{backendRefs: [{name: v1, port: 80}]}]}}`).Route()
		own := parse[route.HTTP](t, `{metadata: {name: own, namespace: aa, uid: own, creationTimestamp: "2026-01-01T00:00:02Z"}, spec: {parentRefs: [{name: edge, namespace: infra}], hostnames: [a.test], rules: [{backendRefs: [{name: v1, port: 80}]}]}}`).Route()
		routes := []*route.Route{wide, own}
		for i := range 12_000 / listeners / 16 {
			routes = append(routes, parse[route.HTTP](t, fmt.Sprintf(
				"{metadata: {name: r%03d, namespace: bb, uid: r%d, creationTimestamp: \"2026-01-01T00:00:30Z\"}, spec: {parentRefs: [{name: edge, namespace: infra}], hostnames: %s, rules: [{backendRefs: [{name: v1, port: 80}]}]}}",
				i, i, quoted(16, strings.Repeat(strings.Repeat("h", 50)+".", 4)+fmt.Sprintf("h%%d.r%d.test", i)))).Route())
		}
		plan, config := p.pack(nil, routes...)
		if out := outOf(plan, "aa"); len(out) > 0 {
			t.Errorf("%d listeners: %q are left out", listeners, out)
		}
		if out := outOf(plan, "bb"); len(out) == 0 || len(out) == len(routes)-2 {
			t.Errorf("%d listeners: of %d routes %d are left out", listeners, len(routes)-2, len(out))
		}
		if hosts := len(config.Tables["listener-insecure"].VirtualHosts); hosts < 500 {
			t.Errorf("%d listeners: %d hosts are written", listeners, hosts)
		}
	}
}

// asking is a route with rules of which each has a server asked in another way.
func asking(t *testing.T, namespace string, second, filters int) *route.Route {
	t.Helper()
	var rules []string
	for i := range filters {
		rules = append(rules, fmt.Sprintf("{matches: [{path: {value: /%d}}], backendRefs: [{name: v1, port: 80}], filters: [{type: ExternalAuth, externalAuth: {protocol: HTTP, backendRef: {name: v1, port: 80}, http: {path: /%d%s, allowedHeaders: %s, allowedResponseHeaders: %s}}}]}",
			i, i, strings.Repeat("p", 1000), quoted(64, strings.Repeat("h", 250)+"%d"), quoted(64, strings.Repeat("h", 250)+"%d")))
	}
	return parse[route.HTTP](t, fmt.Sprintf(
		"{metadata: {name: asking, namespace: %s, uid: %s-asking, creationTimestamp: \"2026-01-01T00:00:%02dZ\"}, spec: {parentRefs: [{name: edge, namespace: infra}], hostnames: [asking.%s.test], rules: [%s]}}",
		namespace, namespace, second, namespace, strings.Join(rules, ", "))).Route()
}

// GW-54, ENV-45: each route of a Gateway names the filters of all namespaces. What that needs is of the namespace that has brought them last: with them the routes
// of an older one would not fit.
func TestFiltersOfOthersArePacked(t *testing.T) {
	var older []*route.Route
	for i := range 3 {
		older = append(older, manyMatches(t, "aa", fmt.Sprint("r", i), 1, 10))
	}
	own := asking(t, "aa", 2, 1)
	p := newPackedGateway(t)
	if plan, _ := p.pack(nil, append(older, own)...); len(leftOutOf(plan)) > 0 || len(plan.model.RefusedAuths) > 0 {
		t.Fatalf("alone %q are left out", leftOutOf(plan))
	}
	younger := asking(t, "bb", 30, 8)
	plan, config := p.pack(nil, append(slices.Clone(older), own, younger)...)
	if out := leftOutOf(plan); len(out) > 0 {
		t.Errorf("%q are left out", out)
	}
	if n := len(plan.model.RefusedAuths); n == 0 || n > 8 {
		t.Errorf("%d filters are refused", n)
	}
	closed := map[string]int{}
	for _, v := range config.Tables["listener-insecure"].VirtualHosts {
		for _, r := range v.Routes {
			if r.GetDirectResponse().GetStatus() == 500 {
				closed[v.Domains[0]]++
			}
		}
	}
	if closed["asking.bb.test"] != len(plan.model.RefusedAuths) || len(closed) != 1 {
		t.Errorf("%v are answered with 500", closed)
	}

	// Many routes of a younger one, of which each names the filter of the older one.
	routes := append(slices.Clone(older), own)
	for i := range 40 {
		routes = append(routes, manyMatches(t, "bb", fmt.Sprint("r", i), 30, 20))
	}
	plan, _ = p.pack(nil, routes...)
	if out := outOf(plan, "aa"); len(out) > 0 || len(plan.model.RefusedAuths) > 0 {
		t.Errorf("%q are left out, and %d filters", out, len(plan.model.RefusedAuths))
	}
}
