// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// GW-60; numbers 1.4 and 1.5 of the contract's tenants.md: a younger ListenerSet of another namespace does not have the host of an older route.
func TestHostsOfOlderRoutes(t *testing.T) {
	const own = `[{name: plain, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}, {name: tls, port: 443, protocol: TLS, tls: {mode: Passthrough}, allowedRoutes: {namespaces: {from: All}}}]`
	for name, test := range map[string]struct {
		created         int
		kind, namespace string // of the route, which is as old as 10
		hosts, parent   string
		port            int
		protocol, host  string
		want            bool
	}{
		"younger":                          {20, "HTTPRoute", "aa", "[shop.test]", "{name: edge, namespace: infra}", 80, "HTTP", "shop.test", false},
		"a wildcard":                       {20, "HTTPRoute", "aa", "[shop.test]", "{name: edge, namespace: infra}", 80, "HTTP", "*.test", false},
		"older":                            {5, "HTTPRoute", "aa", "[shop.test]", "{name: edge, namespace: infra}", 80, "HTTP", "shop.test", true},
		"of one second, by name":           {10, "HTTPRoute", "aa", "[shop.test]", "{name: edge, namespace: infra}", 80, "HTTP", "shop.test", false},
		"of one second, after its name":    {10, "HTTPRoute", "cc", "[shop.test]", "{name: edge, namespace: infra}", 80, "HTTP", "shop.test", true},
		"of one namespace":                 {20, "HTTPRoute", "bb", "[shop.test]", "{name: edge, namespace: infra}", 80, "HTTP", "shop.test", true},
		"another host":                     {20, "HTTPRoute", "aa", "[shop.test]", "{name: edge, namespace: infra}", 80, "HTTP", "other.test", true},
		"another port":                     {20, "HTTPRoute", "aa", "[shop.test]", "{name: edge, namespace: infra}", 81, "HTTP", "shop.test", true},
		"a route for all hosts":            {20, "HTTPRoute", "aa", "[]", "{name: edge, namespace: infra}", 80, "HTTP", "shop.test", true},
		"a route of another listener":      {20, "HTTPRoute", "aa", "[shop.test]", "{name: edge, namespace: infra, sectionName: tls}", 80, "HTTP", "shop.test", true},
		"TLS that is passed through":       {20, "TLSRoute", "aa", "[shop.test]", "{name: edge, namespace: infra}", 443, "TLS", "shop.test", false},
		"a route of the ListenerSet alone": {20, "HTTPRoute", "aa", "[shop.test]", "{name: x, namespace: bb, kind: ListenerSet}", 80, "HTTP", "shop.test", true},
	} {
		t.Run(name, func(t *testing.T) {
			g := edgeOf(t, "{from: All}", own)
			mode := ""
			if test.protocol == "TLS" {
				mode = ", tls: {mode: Passthrough}"
			}
			set := setOf(t, "x", "bb", 1, fmt.Sprintf(`[{name: mine, port: %d, protocol: %s, hostname: "%s"%s, allowedRoutes: {namespaces: {from: All}}}]`, test.port, test.protocol, test.host, mode))
			set.CreationTimestamp = slim.Time(test.created)
			text := fmt.Sprintf("{metadata: {name: r, namespace: %s, generation: 1}, spec: {parentRefs: [%s], hostnames: %s, rules: [{}]}}", test.namespace, test.parent, test.hosts)
			var r *route.Route
			if test.kind == "TLSRoute" {
				r = parse[route.TLS](t, text).Route()
			} else {
				r = parse[route.HTTP](t, text).Route()
			}
			r.CreationTimestamp = 10
			plan := new(planner).plan(g, []*listenerSet{set}, []*route.Route{r}, objects{}.lookup)
			l := plan.sets[0].listeners[0]
			if l.Accepted.OK != test.want || !test.want && !strings.Contains(l.Accepted.Message, "which is older than the ListenerSet") {
				t.Errorf("the listener is accepted: %v", l.Accepted)
			}
			if lost := plan.sets[0].lost; (len(lost) == 0) != test.want || len(lost) > 0 && (len(lost) > 1 || lost[0].by != r || lost[0].at != l) {
				t.Errorf("it has lost %v", lost)
			}
		})
	}
}

// GW-60, K3 of the contract's tenants.md: what is compared has a bound, and many ListenerSets do not use up the protection of older routes: those at ports
// where nothing is cost nothing, and beyond the bound no younger one has a host.
func TestManyListenersForHostsOfRoutes(t *testing.T) {
	const own = "[{name: a, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}, {name: b, port: 81, protocol: HTTP}, {name: c, port: 82, protocol: HTTP}, {name: d, port: 83, protocol: HTTP}]"
	var routes []*route.Route
	for n := range 38 {
		hosts := []string{"shop.test"}
		for i := range 15 {
			hosts = append(hosts, fmt.Sprintf("h%d-%d.test", n, i))
		}
		r := parse[route.HTTP](t, fmt.Sprintf("{metadata: {name: r%d, namespace: aa, generation: 1}, spec: {parentRefs: [{name: edge, namespace: infra}], hostnames: [%s], rules: [{}]}}", n, strings.Join(hosts, ", "))).Route()
		r.CreationTimestamp = 10
		routes = append(routes, r)
	}
	for port, listeners := range map[int]int{1000: 64, 80: 4} { // of each ListenerSet, from a port on
		var sets []*listenerSet
		for n := range 6 {
			var filler []string
			for i := range listeners {
				filler = append(filler, fmt.Sprintf(`{name: l%d, port: %d, protocol: HTTP, hostname: "*.test"}`, i, port+i))
			}
			sets = append(sets, setOf(t, fmt.Sprint("filler", n), "bb", 1, "["+strings.Join(filler, ", ")+"]"))
			sets[n].CreationTimestamp = 20
		}
		last := setOf(t, "shop", "bb", 1, "[{name: mine, port: 80, protocol: HTTP, hostname: shop.test}]")
		last.CreationTimestamp = 30
		sets = append(sets, last)
		plan := new(planner).plan(edgeOf(t, "{from: All}", own), sets, routes, objects{}.lookup)
		if l := plan.sets[len(sets)-1].listeners[0]; l.Accepted.OK {
			t.Errorf("%d: the last ListenerSet has the host of older routes", port)
		}
	}
}

// GW-60, K3 of the contract's tenants.md: so it is where the routes are those of the namespace of the ListenerSets itself, and are at no listener.
func TestManyListenersForHostsOfOwnRoutes(t *testing.T) {
	g := edgeOf(t, "{from: All}", "[{name: a, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}]")
	var sets []*listenerSet
	for n := range 20 {
		var all []string
		for i := range 64 {
			all = append(all, fmt.Sprintf(`{name: l%d, port: 80, protocol: HTTP, hostname: "*.bb.test"}`, i))
		}
		sets = append(sets, setOf(t, fmt.Sprint("s", n), "bb", n, "["+strings.Join(all, ", ")+"]"))
	}
	var routes []*route.Route
	for n := range 600 {
		var hosts []string
		for i := range 16 {
			hosts = append(hosts, fmt.Sprintf("h%d-%d.bb.test", n, i))
		}
		routes = append(routes, parse[route.HTTP](t, fmt.Sprintf("{metadata: {name: r%d, namespace: bb, generation: 1}, spec: {parentRefs: [{name: edge, namespace: infra, sectionName: none}], hostnames: [%s], rules: [{}]}}", n, strings.Join(hosts, ", "))).Route())
	}
	plan := new(planner).plan(g, sets, routes, objects{}.lookup)
	k := newHostOwners(plan, false, routes, objects{}.lookup)
	refused := 0
	for i := range plan.sets {
		for _, l := range plan.sets[i].listeners {
			if k.refuse(l) != nil {
				refused++
			}
		}
	}
	if steps := k.steps[between{sets: slim.MakeString("bb")}]; refused == 0 || steps > maxAllSteps+20*64 {
		t.Errorf("%d listeners are refused after %d steps", refused, steps)
	}
}

// GW-60, K1 of the contract's tenants.md: younger routes, however many there are and of how many namespaces, cost a ListenerSet nothing, and it keeps its host.
func TestManyYoungerRoutesAtAListener(t *testing.T) {
	var own, refs []string
	for i := range 64 {
		own = append(own, fmt.Sprintf(`{name: l%d, port: 443, protocol: TLS, hostname: l%d.test, tls: {mode: Passthrough}}`, i, i))
	}
	for i := range 32 {
		refs = append(refs, fmt.Sprintf("{name: edge, namespace: infra, sectionName: none%d}", i))
	}
	set := setOf(t, "shop", "aa", 1, `[{name: mine, port: 443, protocol: TLS, hostname: "*.aa.test", tls: {mode: Passthrough}}]`)
	set.CreationTimestamp = 10
	var routes []*route.Route
	for n := range 300 {
		var hosts []string
		for i := range 16 {
			hosts = append(hosts, fmt.Sprintf("h%d-%d.aa.test", n, i))
		}
		r := parse[route.TLS](t, fmt.Sprintf("{metadata: {name: r%d, namespace: n%d, generation: 1}, spec: {parentRefs: [%s], hostnames: [%s], rules: [{backendRefs: [{name: s, port: 1}]}]}}", n, n%10, strings.Join(refs, ", "), strings.Join(hosts, ", "))).Route()
		r.CreationTimestamp = 20
		routes = append(routes, r)
	}
	plan := new(planner).plan(edgeOf(t, "{from: All}", "["+strings.Join(own, ", ")+"]"), []*listenerSet{set}, routes, objects{}.lookup)
	k := newHostOwners(plan, true, routes, objects{}.lookup)
	l := plan.sets[0].listeners[0]
	if why := k.refuse(l); why != nil || !l.Accepted.OK || len(k.steps) > 0 {
		t.Errorf("the older ListenerSet is refused: %v, %v; steps: %v", why, l.Accepted, k.steps)
	}
}

// GW-60: which route decides, what a ListenerSet that is refused keeps from others, and agents with one listener for all ports.
func TestHostsOfSeveralRoutes(t *testing.T) {
	const (
		plain     = `[{name: plain, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}]`
		tls       = `[{name: tls, port: 443, protocol: TLS, tls: {mode: Passthrough}, allowedRoutes: {namespaces: {from: All}}}]`
		shop      = `[{name: mine, port: 80, protocol: HTTP, hostname: shop.test, allowedRoutes: {namespaces: {from: All}}}]`
		elsewhere = `[{name: mine, port: 8443, protocol: TLS, tls: {mode: Passthrough}, hostname: %s, allowedRoutes: {namespaces: {from: All}}}]`
		two       = `[{name: any, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}, {name: shop, port: 80, protocol: HTTP, hostname: "*.test", allowedRoutes: {namespaces: {from: All}}}]`
		https     = `[{name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}, allowedRoutes: {namespaces: {from: All}}}]`
		passed    = `[{name: mine, port: 443, protocol: TLS, tls: {mode: Passthrough}, hostname: %s}]`
		ended     = `[{name: mine, port: 443, protocol: TLS, tls: {certificateRefs: [{name: %s}]}, hostname: shop.test}]`
		toGateway = "{name: edge, namespace: infra}"
	)
	c := objects{secrets: map[slim.Key]bool{{Namespace: "infra", Name: "cert"}: true, {Namespace: "bb", Name: "cert"}: true}}
	type aRoute struct{ namespace, parents string }
	for name, test := range map[string]struct {
		own    string
		sets   []string // namespace: listeners; each younger than all routes, and than the one before
		routes []aRoute // the oldest first
		one    bool     // agents have one listener of Envoy for all ports
		joins  bool
		want   string // which are accepted
	}{
		"the oldest route decides":             {plain, []string{"bb: " + shop}, []aRoute{{"bb", toGateway}, {"aa", toGateway}}, false, false, "bb"},
		"that of another namespace":            {plain, []string{"bb: " + shop}, []aRoute{{"aa", toGateway}, {"bb", toGateway}}, false, false, ""},
		"the option":                           {plain, []string{"bb: " + shop}, []aRoute{{"aa", toGateway}}, false, true, "bb"},
		"the route attaches to it, too":        {plain, []string{"bb: " + shop}, []aRoute{{"aa", toGateway + ", {name: s0, namespace: bb, kind: ListenerSet}"}}, false, false, "bb"},
		"the owner's own comes later":          {plain, []string{"bb: " + shop, "aa: " + shop}, []aRoute{{"aa", toGateway}}, false, false, "aa"},
		"another port with TLS":                {tls, []string{"bb: " + fmt.Sprintf(elsewhere, "shop.test")}, []aRoute{{"aa", toGateway}}, false, false, "bb"},
		"another port with TLS, one listener":  {tls, []string{"bb: " + fmt.Sprintf(elsewhere, "shop.test")}, []aRoute{{"aa", toGateway}}, true, false, ""},
		"a wildcard at another port":           {tls, []string{"bb: " + fmt.Sprintf(elsewhere, "'*.test'")}, []aRoute{{"aa", toGateway}}, true, false, ""},
		"another host at another port":         {tls, []string{"bb: " + fmt.Sprintf(elsewhere, "other.test")}, []aRoute{{"aa", toGateway}}, true, false, "bb"},
		"several before the owner's own":       {plain, []string{"bb: " + shop, "bb: " + shop, "cc: " + shop, "bb: " + shop, "bb: " + shop, "aa: " + shop}, []aRoute{{"aa", toGateway}}, false, false, "aa"},
		"TLS that is passed through, of HTTPS": {https, []string{"bb: " + fmt.Sprintf(passed, "shop.test")}, []aRoute{{"aa", toGateway}}, false, false, ""},
		"a wildcard of it":                     {https, []string{"bb: " + fmt.Sprintf(passed, "'*.test'")}, []aRoute{{"aa", toGateway}}, false, false, ""},
		"TLS that ends, of HTTPS":              {https, []string{"bb: " + fmt.Sprintf(ended, "cert")}, []aRoute{{"aa", toGateway}}, false, false, ""},
		"TLS without a certificate, of HTTPS":  {https, []string{"bb: " + fmt.Sprintf(ended, "none")}, []aRoute{{"aa", toGateway}}, false, false, ""},
		"TLS of another host":                  {https, []string{"bb: " + fmt.Sprintf(passed, "other.test")}, []aRoute{{"aa", toGateway}}, false, false, "bb"},
		"TLS of the route's own namespace":     {https, []string{"aa: " + fmt.Sprintf(passed, "shop.test")}, []aRoute{{"aa", toGateway}}, false, false, "aa"},
		"a route without the name there":       {two, []string{"bb: " + shop}, []aRoute{{"bb", "{name: edge, namespace: infra, sectionName: any}"}, {"aa", "{name: edge, namespace: infra, sectionName: shop}"}}, false, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var sets []*listenerSet
			for i, text := range test.sets {
				namespace, listeners, _ := strings.Cut(text, ": ")
				set := setOf(t, fmt.Sprint("s", i), namespace, i+1, listeners)
				set.CreationTimestamp = slim.Time(100 + i)
				sets = append(sets, set)
			}
			var routes []*route.Route
			for i, r := range test.routes {
				text := fmt.Sprintf("{metadata: {name: r%d, namespace: %s, generation: 1}, spec: {parentRefs: [%s], hostnames: [shop.test], rules: [{}]}}", i, r.namespace, r.parents)
				of := parse[route.HTTP](t, text).Route()
				if test.own == tls {
					of = parse[route.TLS](t, text).Route()
				}
				of.CreationTimestamp = slim.Time(10 + i)
				routes = append(routes, of)
			}
			p := planner{oneListener: test.one, joins: test.joins}
			for range 2 { // again, with what is kept
				var accepted []string
				for _, s := range p.plan(edgeOf(t, "{from: All}", test.own), sets, routes, c.lookup).sets {
					if s.listeners[0].Accepted.OK {
						accepted = append(accepted, s.of.Namespace.String())
					}
				}
				if got := strings.Join(accepted, " "); got != test.want {
					t.Errorf("accepted are those of %q, want %q", got, test.want)
				}
			}
		})
	}
}
