// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// refusedBy is what a plan refuses, a line each.
func refusedBy(p *gatewayPlan) (all []string) {
	for id, byListener := range p.refused {
		for l, why := range byListener {
			all = append(all, fmt.Sprintf("%s at %s: %s", id, l.of.Name, why.Reason))
		}
	}
	slices.Sort(all)
	return all
}

// routeOf is a route of a kind, of a namespace, with hosts, so many seconds old.
func routeOf(t *testing.T, kind, namespace string, second int, section, hosts string) *route {
	t.Helper()
	ref := "{name: edge, namespace: infra"
	if section != "" {
		ref += ", sectionName: " + section
	}
	text := fmt.Sprintf("{metadata: {name: %s-%d, namespace: %s, creationTimestamp: \"2026-01-01T00:00:%02dZ\"}, spec: {parentRefs: [%s}], hostnames: [%s], rules: [{backendRefs: [{name: s, port: 80}]}]}}",
		strings.ToLower(kind), second, namespace, second, ref, hosts)
	switch kind {
	case kindGRPC:
		return parse[grpcRoute](t, text).route()
	case kindTLS:
		return parse[tlsRoute](t, text).route()
	}
	return parse[httpRoute](t, text).route()
}

// GW-51: number 1.6 of the contract's tenants.md.
func TestHostsOfKinds(t *testing.T) {
	c := objects{services: map[slim.Key]bool{{Namespace: "aa", Name: "s"}: true, {Namespace: "bb", Name: "s"}: true, {Namespace: "cc", Name: "s"}: true}}
	g := parse[gateway](t, "{metadata: {name: edge, namespace: infra}, spec: {listeners: [{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}, {name: other, port: 81, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}]}}")
	type of struct {
		kind, namespace string
		second          int
		section, hosts  string
	}
	for name, test := range map[string]struct {
		routes []of
		want   []string
	}{
		"the younger one is refused":         {[]of{{kindHTTP, "aa", 1, "http", "api.test"}, {kindGRPC, "bb", 2, "http", "api.test"}}, []string{"bb/GRPCRoute/grpcroute-2 at http: HostnameConflict"}},
		"whatever its kind":                  {[]of{{kindHTTP, "aa", 2, "http", "api.test"}, {kindGRPC, "bb", 1, "http", "api.test"}}, []string{"aa/HTTPRoute/httproute-2 at http: HostnameConflict"}},
		"one namespace has both":             {[]of{{kindHTTP, "aa", 1, "http", "api.test"}, {kindGRPC, "aa", 2, "http", "api.test"}}, nil},
		"one kind":                           {[]of{{kindHTTP, "aa", 1, "http", "api.test"}, {kindHTTP, "bb", 2, "http", "api.test"}}, nil},
		"another listener":                   {[]of{{kindHTTP, "aa", 1, "http", "api.test"}, {kindGRPC, "bb", 2, "other", "api.test"}}, nil},
		"another host":                       {[]of{{kindHTTP, "aa", 1, "http", "'*.test'"}, {kindGRPC, "bb", 2, "http", "api.test"}}, nil},
		"at the listener that has it":        {[]of{{kindHTTP, "aa", 1, "http", "api.test"}, {kindGRPC, "bb", 2, "", "api.test"}}, []string{"bb/GRPCRoute/grpcroute-2 at http: HostnameConflict"}},
		"what is refused has no other hosts": {[]of{{kindHTTP, "aa", 1, "http", "a.test"}, {kindGRPC, "bb", 2, "http", "a.test, b.test"}, {kindHTTP, "cc", 3, "http", "b.test"}}, []string{"bb/GRPCRoute/grpcroute-2 at http: HostnameConflict"}},
	} {
		t.Run(name, func(t *testing.T) {
			var routes []*route
			for _, r := range test.routes {
				routes = append(routes, routeOf(t, r.kind, r.namespace, r.second, r.section, r.hosts))
			}
			plan := new(planner).plan(g, nil, routes, c.ask)
			if diff := cmp.Diff(test.want, refusedBy(plan)); diff != "" {
				t.Error(diff)
			}
			attached := int32(0)
			for _, n := range plan.attached {
				attached += n
			}
			served := int32(0)
			for _, r := range routes {
				served += int32(len(plan.hostsOf(r, c.ask)) - len(plan.refused[r.id()]))
			}
			if attached != served {
				t.Errorf("%d routes are attached, %d are served", attached, served)
			}
		})
	}
}

// GW-51: number 1.7 of the contract's tenants.md: routes of one kind share a host, which its oldest route is told once.
func TestSharedHosts(t *testing.T) {
	g := parse[gateway](t, "{metadata: {name: edge, namespace: infra}, spec: {listeners: [{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}]}}")
	routes := []*route{routeOf(t, kindHTTP, "aa", 1, "", "a.test"), routeOf(t, kindHTTP, "bb", 2, "", "a.test, '*.test'"), routeOf(t, kindHTTP, "aa", 3, "", "a.test"), routeOf(t, kindHTTP, "cc", 4, "", "'*.test'")}
	var got []string
	for _, s := range new(planner).plan(g, nil, routes, objects{}.ask).shared {
		got = append(got, fmt.Sprint(s.host, " of ", s.oldest.name(), ": ", s.younger.name()))
	}
	if diff := cmp.Diff([]string{"a.test of aa/httproute-1: bb/httproute-2", "*.test of bb/httproute-2: cc/httproute-4"}, got); diff != "" {
		t.Error(diff)
	}
}

// GW-52: numbers 30 and 31 of the contract's gateway-api.md, where agents have one listener of Envoy, and where they have several.
func TestPortsOfTLS(t *testing.T) {
	c := objects{services: map[slim.Key]bool{{Namespace: "infra", Name: "s"}: true}, secrets: map[slim.Key]bool{{Namespace: "infra", Name: "cert"}: true}}
	const https, passed = "protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}", "protocol: TLS, tls: {mode: Passthrough}"
	for name, test := range map[string]struct {
		first, second string // listeners
		routes        []*route
		listeners     string // which are usable with one listener of Envoy
		refused       []string
	}{
		"30: one host": {
			https + ", hostname: a.test", passed + ", hostname: a.test",
			[]*route{routeOf(t, kindHTTP, "infra", 1, "first", ""), routeOf(t, kindTLS, "infra", 2, "second", "a.test")},
			"true false", []string{"infra/TLSRoute/tlsroute-2 at second: UnsupportedValue"},
		},
		"30: the later listener": {
			passed + ", hostname: a.test", https + ", hostname: a.test",
			[]*route{routeOf(t, kindTLS, "infra", 2, "first", "a.test"), routeOf(t, kindHTTP, "infra", 1, "second", "")},
			"true false", []string{"infra/HTTPRoute/httproute-1 at second: UnsupportedValue"},
		},
		"31: one wildcard that is passed through": {
			passed + ", hostname: '*.test'", passed + ", hostname: '*.test'",
			[]*route{routeOf(t, kindTLS, "infra", 1, "first", ""), routeOf(t, kindTLS, "infra", 2, "second", "")},
			"true true", []string{"infra/TLSRoute/tlsroute-2 at second: UnsupportedValue"},
		},
		"one route at both ports": {
			passed, passed, []*route{routeOf(t, kindTLS, "infra", 1, "", "a.test")}, "true true", nil,
		},
		"other hosts": {
			https, passed, []*route{routeOf(t, kindHTTP, "infra", 1, "first", "a.test"), routeOf(t, kindTLS, "infra", 2, "second", "b.test")}, "true true", nil,
		},
		"the host of an older route": {
			https, passed, []*route{routeOf(t, kindHTTP, "infra", 1, "first", "a.test"), routeOf(t, kindTLS, "infra", 2, "second", "a.test")},
			"true true", []string{"infra/TLSRoute/tlsroute-2 at second: UnsupportedValue"},
		},
		"the host of a younger route": {
			https, passed, []*route{routeOf(t, kindHTTP, "infra", 3, "first", "a.test"), routeOf(t, kindTLS, "infra", 2, "second", "a.test")},
			"true true", []string{"infra/HTTPRoute/httproute-3 at first: UnsupportedValue"},
		},
		"all hosts": {
			https, passed, []*route{routeOf(t, kindTLS, "infra", 2, "second", "")},
			"true true", []string{"infra/TLSRoute/tlsroute-2 at second: UnsupportedValue"},
		},
		"two ports of HTTPS": {
			https + ", hostname: a.test", https + ", hostname: a.test",
			[]*route{routeOf(t, kindHTTP, "infra", 1, "first", ""), routeOf(t, kindHTTP, "infra", 2, "second", "")}, "true true", nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := parse[gateway](t, fmt.Sprintf("{metadata: {name: edge, namespace: infra}, spec: {listeners: [{name: first, port: 443, %s}, {name: second, port: 8443, %s}]}}", test.first, test.second))
			var p planner
			for _, one := range []bool{false, true, false} {
				p.oneListener = one
				plan := p.plan(g, nil, test.routes, c.ask)
				usable, want, refused := fmt.Sprint(plan.own[0].usable(), " ", plan.own[1].usable()), "true true", []string(nil)
				if one {
					want, refused = test.listeners, test.refused
				}
				if usable != want {
					t.Errorf("one listener %t: usable are %s, want %s", one, usable, want)
				}
				if diff := cmp.Diff(refused, refusedBy(plan)); diff != "" {
					t.Errorf("one listener %t: %s", one, diff)
				}
			}
		})
	}
}
