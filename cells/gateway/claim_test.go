// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// refusedBy is what a plan refuses, a line each.
func refusedBy(p *gatewayPlan) (all []string) {
	for id, byListener := range p.refused {
		for l, why := range byListener {
			all = append(all, fmt.Sprintf("%s at %s: %s", id, l.Of.Name, why.Reason))
		}
	}
	slices.Sort(all)
	return all
}

// routeOf is a route of a kind, of a namespace, with hosts, so many seconds old.
func routeOf(t *testing.T, kind, namespace string, second int, section, hosts string) *route.Route {
	t.Helper()
	ref := "{name: edge, namespace: infra"
	if section != "" {
		ref += ", sectionName: " + section
	}
	text := fmt.Sprintf("{metadata: {name: %s-%d, namespace: %s, creationTimestamp: \"2026-01-01T00:00:%02dZ\"}, spec: {parentRefs: [%s}], hostnames: [%s], rules: [{backendRefs: [{name: s, port: 80}]}]}}",
		strings.ToLower(kind), second, namespace, second, ref, hosts)
	switch kind {
	case route.KindGRPC:
		return parse[route.GRPC](t, text).Route()
	case route.KindTLS:
		return parse[route.TLS](t, text).Route()
	case route.KindTCP:
		return parse[route.TCP](t, strings.Replace(text, "hostnames: [], ", "", 1)).Route()
	case route.KindUDP:
		return parse[route.UDP](t, strings.Replace(text, "hostnames: [], ", "", 1)).Route()
	}
	return parse[route.HTTP](t, text).Route()
}

// GW-51: number 1.6 of the contract's tenants.md.
func TestHostsOfKinds(t *testing.T) {
	c := objects{services: map[slim.Key]bool{{Namespace: "aa", Name: "s"}: true, {Namespace: "bb", Name: "s"}: true, {Namespace: "cc", Name: "s"}: true}}
	g := parse[gateway](t, "{metadata: {name: edge, namespace: infra}, spec: {listeners: [{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}, {name: other, port: 81, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}, "+
		"{name: tls, port: 443, protocol: TLS, tls: {mode: Passthrough}, allowedRoutes: {namespaces: {from: All}}}, {name: tcp, port: 9000, protocol: TCP, allowedRoutes: {namespaces: {from: All}}}, "+
		"{name: udp, port: 53, protocol: UDP, allowedRoutes: {namespaces: {from: All}}}]}}")
	lookup := func(q route.Query) route.Answer {
		if q.About == route.AboutKind {
			return route.Answer{Exists: true, OK: true}
		}
		return c.lookup(q)
	}
	type of struct {
		kind, namespace string
		second          int
		section, hosts  string
	}
	for name, test := range map[string]struct {
		routes []of
		want   []string
	}{
		"the younger one is refused":         {[]of{{route.KindHTTP, "aa", 1, "http", "api.test"}, {route.KindGRPC, "bb", 2, "http", "api.test"}}, []string{"bb/GRPCRoute/grpcroute-2 at http: HostnameConflict"}},
		"whatever its kind":                  {[]of{{route.KindHTTP, "aa", 2, "http", "api.test"}, {route.KindGRPC, "bb", 1, "http", "api.test"}}, []string{"aa/HTTPRoute/httproute-2 at http: HostnameConflict"}},
		"one namespace has both":             {[]of{{route.KindHTTP, "aa", 1, "http", "api.test"}, {route.KindGRPC, "aa", 2, "http", "api.test"}}, nil},
		"one kind":                           {[]of{{route.KindHTTP, "aa", 1, "http", "api.test"}, {route.KindHTTP, "bb", 2, "http", "api.test"}}, nil},
		"another listener":                   {[]of{{route.KindHTTP, "aa", 1, "http", "api.test"}, {route.KindGRPC, "bb", 2, "other", "api.test"}}, nil},
		"another host":                       {[]of{{route.KindHTTP, "aa", 1, "http", "'*.test'"}, {route.KindGRPC, "bb", 2, "http", "api.test"}}, nil},
		"at the listener that has it":        {[]of{{route.KindHTTP, "aa", 1, "http", "api.test"}, {route.KindGRPC, "bb", 2, "", "api.test"}}, []string{"bb/GRPCRoute/grpcroute-2 at http: HostnameConflict"}},
		"TLS that is passed through":         {[]of{{route.KindTLS, "aa", 1, "tls", "api.test"}, {route.KindTLS, "bb", 2, "tls", "api.test"}, {route.KindTLS, "bb", 3, "tls", "other.test"}}, []string{"bb/TLSRoute/tlsroute-2 at tls: HostnameConflict"}},
		"TLS of one namespace":               {[]of{{route.KindTLS, "aa", 1, "tls", "api.test"}, {route.KindTLS, "aa", 2, "tls", "api.test"}}, nil},
		"TCP":                                {[]of{{route.KindTCP, "aa", 1, "tcp", ""}, {route.KindTCP, "bb", 2, "tcp", ""}}, []string{"bb/TCPRoute/tcproute-2 at tcp: HostnameConflict"}},
		"UDP, whose older route comes later": {[]of{{route.KindUDP, "aa", 2, "udp", ""}, {route.KindUDP, "bb", 1, "udp", ""}}, []string{"aa/UDPRoute/udproute-2 at udp: HostnameConflict"}},
		"what is refused has no other hosts": {[]of{{route.KindHTTP, "aa", 1, "http", "a.test"}, {route.KindGRPC, "bb", 2, "http", "a.test, b.test"}, {route.KindHTTP, "cc", 3, "http", "b.test"}}, []string{"bb/GRPCRoute/grpcroute-2 at http: HostnameConflict"}},
	} {
		t.Run(name, func(t *testing.T) {
			var routes []*route.Route
			for _, r := range test.routes {
				routes = append(routes, routeOf(t, r.kind, r.namespace, r.second, r.section, r.hosts))
			}
			plan := new(planner).plan(g, nil, routes, lookup)
			if diff := cmp.Diff(test.want, refusedBy(plan)); diff != "" {
				t.Error(diff)
			}
			if joined := refusedBy((&planner{joins: true}).plan(g, nil, routes, lookup)); len(joined) > 0 {
				t.Errorf("where namespaces share hosts, refused are %v", joined)
			}
			attached := int32(0)
			for _, n := range plan.attached {
				attached += n
			}
			served := int32(0)
			for _, r := range routes {
				served += int32(len(plan.hostsOf(r, lookup)) - len(plan.refused[r.ID()]))
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
	routes := []*route.Route{routeOf(t, route.KindHTTP, "aa", 1, "", "a.test"), routeOf(t, route.KindHTTP, "bb", 2, "", "a.test, '*.test'"), routeOf(t, route.KindHTTP, "aa", 3, "", "a.test"), routeOf(t, route.KindHTTP, "cc", 4, "", "'*.test'")}
	var got []string
	for _, s := range new(planner).plan(g, nil, routes, objects{}.lookup).shared {
		got = append(got, fmt.Sprint(s.Host, " of ", s.Oldest.Source(), ": ", s.Younger.Source()))
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
		routes        []*route.Route
		listeners     string // which are usable with one listener of Envoy
		refused       []string
	}{
		"30: one host": {
			https + ", hostname: a.test", passed + ", hostname: a.test",
			[]*route.Route{routeOf(t, route.KindHTTP, "infra", 1, "first", ""), routeOf(t, route.KindTLS, "infra", 2, "second", "a.test")},
			"true false", []string{"infra/TLSRoute/tlsroute-2 at second: UnsupportedValue"},
		},
		"30: the later listener": {
			passed + ", hostname: a.test", https + ", hostname: a.test",
			[]*route.Route{routeOf(t, route.KindTLS, "infra", 2, "first", "a.test"), routeOf(t, route.KindHTTP, "infra", 1, "second", "")},
			"true false", []string{"infra/HTTPRoute/httproute-1 at second: UnsupportedValue"},
		},
		"31: one wildcard that is passed through": {
			passed + ", hostname: '*.test'", passed + ", hostname: '*.test'",
			[]*route.Route{routeOf(t, route.KindTLS, "infra", 1, "first", ""), routeOf(t, route.KindTLS, "infra", 2, "second", "")},
			"true true", []string{"infra/TLSRoute/tlsroute-2 at second: UnsupportedValue"},
		},
		"one route at both ports": {
			passed, passed, []*route.Route{routeOf(t, route.KindTLS, "infra", 1, "", "a.test")}, "true true", nil,
		},
		"other hosts": {
			https, passed, []*route.Route{routeOf(t, route.KindHTTP, "infra", 1, "first", "a.test"), routeOf(t, route.KindTLS, "infra", 2, "second", "b.test")}, "true true", nil,
		},
		"the host of an older route": {
			https, passed, []*route.Route{routeOf(t, route.KindHTTP, "infra", 1, "first", "a.test"), routeOf(t, route.KindTLS, "infra", 2, "second", "a.test")},
			"true true", []string{"infra/TLSRoute/tlsroute-2 at second: UnsupportedValue"},
		},
		"the host of a younger route": {
			https, passed, []*route.Route{routeOf(t, route.KindHTTP, "infra", 3, "first", "a.test"), routeOf(t, route.KindTLS, "infra", 2, "second", "a.test")},
			"true true", []string{"infra/HTTPRoute/httproute-3 at first: UnsupportedValue"},
		},
		"all hosts": {
			https, passed, []*route.Route{routeOf(t, route.KindTLS, "infra", 2, "second", "")},
			"true true", []string{"infra/TLSRoute/tlsroute-2 at second: UnsupportedValue"},
		},
		"two ports of HTTPS": {
			https + ", hostname: a.test", https + ", hostname: a.test",
			[]*route.Route{routeOf(t, route.KindHTTP, "infra", 1, "first", ""), routeOf(t, route.KindHTTP, "infra", 2, "second", "")}, "true true", nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := parse[gateway](t, fmt.Sprintf("{metadata: {name: edge, namespace: infra}, spec: {listeners: [{name: first, port: 443, %s}, {name: second, port: 8443, %s}]}}", test.first, test.second))
			var p planner
			for _, one := range []bool{false, true, false} {
				p.oneListener = one
				plan := p.plan(g, nil, test.routes, c.lookup)
				usable, want, refused := fmt.Sprint(plan.own[0].Usable(), " ", plan.own[1].Usable()), "true true", []string(nil)
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
