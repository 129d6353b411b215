// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// cutRoute has a route be one that is cut.
func cutRoute(r *route.Route) *route.Route {
	cut := &route.HTTP{}
	slim.CutDown(cut, 100<<10)
	r.Cut = cut.Cut
	return r
}

const openListeners = "[{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}, {name: tls, port: 443, protocol: TLS, tls: {mode: Passthrough}, allowedRoutes: {namespaces: {from: All}}}]"

// GW-64, GW-59, K8S-24: the hosts of a route that is cut are those of no younger route of another namespace, and of no other one of its own. An older route
// of another namespace has what it had.
func TestHostsOfCutRoutes(t *testing.T) {
	c := objects{services: map[slim.Key]bool{{Namespace: "aa", Name: "s"}: true, {Namespace: "bb", Name: "s"}: true, {Namespace: "cc", Name: "s"}: true}}
	g := edgeOf(t, "{from: All}", openListeners)
	type of struct {
		kind, namespace string
		second          int
		section, hosts  string
	}
	for name, test := range map[string]struct {
		cut    of
		others []of
		want   []string
	}{
		"a younger one of another namespace": {
			of{route.KindHTTP, "aa", 3, "http", "shop.test"}, []of{{route.KindHTTP, "bb", 4, "http", "shop.test"}, {route.KindGRPC, "bb", 5, "http", "shop.test"}},
			[]string{"bb/GRPCRoute/grpcroute-5 at http: HostnameConflict", "bb/HTTPRoute/httproute-4 at http: HostnameConflict"},
		},
		"an older one of another namespace": {of{route.KindHTTP, "aa", 3, "http", "shop.test"}, []of{{route.KindHTTP, "bb", 2, "http", "shop.test"}}, nil},
		"those of its namespace": {
			of{route.KindHTTP, "aa", 3, "http", "shop.test"}, []of{{route.KindHTTP, "aa", 2, "http", "shop.test"}, {route.KindHTTP, "aa", 4, "http", "shop.test"}, {route.KindHTTP, "aa", 5, "http", "other.test"}},
			[]string{"aa/HTTPRoute/httproute-2 at http: HostnameConflict", "aa/HTTPRoute/httproute-4 at http: HostnameConflict"},
		},
		"of several, all are older": {
			of{route.KindHTTP, "aa", 1, "http", "shop.test, b.test"}, []of{{route.KindHTTP, "cc", 4, "http", "b.test"}, {route.KindHTTP, "cc", 5, "http", "c.test"}},
			[]string{"cc/HTTPRoute/httproute-4 at http: HostnameConflict"},
		},
		"connections": {
			of{route.KindTLS, "aa", 3, "tls", "shop.test"}, []of{{route.KindTLS, "bb", 4, "tls", "shop.test"}, {route.KindTLS, "aa", 5, "tls", "shop.test"}},
			[]string{"aa/TLSRoute/tlsroute-5 at tls: HostnameConflict", "bb/TLSRoute/tlsroute-4 at tls: HostnameConflict"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			newRoute := func(o of) *route.Route { return routeOf(t, o.kind, o.namespace, o.second, o.section, o.hosts) }
			whole, routes := []*route.Route{newRoute(test.cut)}, []*route.Route{cutRoute(newRoute(test.cut))}
			for _, o := range test.others {
				whole, routes = append(whole, newRoute(o)), append(routes, newRoute(o))
			}
			if diff := cmp.Diff(test.want, refusedBy(new(planner).plan(g, nil, routes, c.lookup))); diff != "" {
				t.Error(diff)
			}
			p := new(planner) // there is memory for it, and there is none any more
			p.plan(g, nil, whole, c.lookup)
			if diff := cmp.Diff(test.want, refusedBy(p.plan(g, nil, routes, c.lookup))); diff != "" {
				t.Error(diff)
			}
			before := refusedBy(new(planner).plan(g, nil, whole, c.lookup))
			if diff := cmp.Diff(before, refusedBy(p.plan(g, nil, whole, c.lookup))); diff != "" {
				t.Errorf("whole again: %s", diff)
			}
		})
	}
}

// GW-64, GW-23: so it is where the matches of a rule cannot be decoded.
func TestHostsOfUnknownMatches(t *testing.T) {
	c := objects{services: map[slim.Key]bool{{Namespace: "aa", Name: "s"}: true}}
	codec, err := slim.JSON[route.HTTP]()
	if err != nil {
		t.Fatal(err)
	}
	text := func(name, matches string) *route.Route {
		r := new(route.HTTP)
		if err := codec.DecodeJSON(fmt.Appendf(nil, `{"metadata":{"name":%q,"namespace":"aa","uid":%q,"resourceVersion":"1","generation":1},"spec":{"parentRefs":[{"name":"edge","namespace":"infra"}],"hostnames":["shop.test"],
			"rules":[{"matches":%s,"backendRefs":[{"name":"s","port":80}]}]}}`, name, name, matches), r); err != nil {
			t.Fatal(err)
		}
		return r.Route()
	}
	unknown, plain := text("unknown", `[{"path":{"type":7}}]`), text("plain", `[]`)
	plan := new(planner).plan(edgeOf(t, "{from: All}", openListeners), nil, []*route.Route{unknown, plain}, c.lookup)
	if got := refusedBy(plan); len(got) != 1 || got[0] != "aa/HTTPRoute/plain at http: HostnameConflict" {
		t.Errorf("refused are %v", got)
	}
}

// GW-64: connections to a host of a TLSRoute that is cut are not those of a wider name.
func TestConnectionsOfCutRoutes(t *testing.T) {
	c := objects{services: map[slim.Key]bool{{Namespace: "aa", Name: "s"}: true, {Namespace: "bb", Name: "s"}: true}}
	large, wider := cutRoute(routeOf(t, route.KindTLS, "aa", 1, "tls", "pt.test")), routeOf(t, route.KindTLS, "bb", 2, "tls", `"*.test"`)
	plan := new(planner).plan(edgeOf(t, "{from: All}", openListeners), nil, []*route.Route{large, wider}, c.lookup)
	closed := 0
	for _, p := range plan.model.Passthrough {
		if slices.Equal(p.Hostnames, []string{"pt.test"}) && p.Exclusive && len(p.Backends) == 0 {
			closed++
		}
	}
	if closed != 1 {
		t.Errorf("it is closed %d times: %+v", closed, plan.model.Passthrough)
	}
	if n := plan.attached[plan.listeners[1]]; n != 1 {
		t.Errorf("%d routes are attached", n)
	}
}

// GW-59, GW-64, K8S-24: a ListenerSet that is cut is not accepted, and says why. Its listeners keep their hosts from younger ones of others, and from wider
// ones. What is left of it is small.
func TestCutListenerSet(t *testing.T) {
	const own = "[{name: http, port: 80, protocol: HTTP}, {name: wide, port: 443, protocol: HTTPS, hostname: \"*.test\", tls: {certificateRefs: [{name: cert}]}}]"
	g := edgeOf(t, "{from: All}", own)
	c := objects{secrets: map[slim.Key]bool{{Namespace: "infra", Name: "cert"}: true, {Namespace: "b", Name: "cert"}: true, {Namespace: "a", Name: "cert"}: true}}
	const shop = "[{name: l, port: 443, protocol: HTTPS, hostname: shop.test, tls: {certificateRefs: [{name: cert}]}}, {name: plain, port: 80, protocol: HTTP, hostname: shop.test}]"
	large, other := setOf(t, "large", "a", 2, shop), setOf(t, "other", "b", 1, shop)
	for range 20_000 {
		large.Spec.Listeners[0].TLS.CertificateRefs = append(large.Spec.Listeners[0].TLS.CertificateRefs, large.Spec.Listeners[0].TLS.CertificateRefs[0])
	}
	if !slim.CutDown(large, 100<<10) || slim.SizeOf(large) > 4<<10 {
		t.Fatalf("%d bytes stay", slim.SizeOf(large))
	}
	plan := new(planner).plan(g, []*listenerSet{large, other}, nil, c.lookup)
	of := plan.result(g, outcome{addressless: true})
	for _, s := range plan.sets {
		r := s.result(of)
		if r.accepted.OK || r.accepted.Reason != "ListenersNotValid" || strings.Contains(r.accepted.Message, "it needs 100 KiB of memory") != (s.of == large) {
			t.Errorf("%s: %+v", s.of.Name, r)
		}
		for _, l := range s.listeners {
			if (l.Conflicted != nil) != (s.of == other) || l.Usable() {
				t.Errorf("%s of %s: %+v", l.Of.Name, s.of.Name, l.Accepted)
			}
		}
		var status gatewayv1.ListenerSetStatus
		s.applyStatus(&status, r, plan.attached, true, metav1.Time{})
		if has := len(status.Listeners) > 0; has != (s.of == other) {
			t.Errorf("the status of %s has %d listeners", s.of.Name, len(status.Listeners))
		}
	}
	if !slices.ContainsFunc(plan.model.Passthrough, func(p envoy.Passthrough) bool { return p.Exclusive && slices.Equal(p.Hostnames, []string{"shop.test"}) }) {
		t.Errorf("connections are not closed: %+v", plan.model.Passthrough)
	}
	if !slices.ContainsFunc(plan.model.HTTP, func(l envoy.Listener) bool {
		return l.Hostname == "shop.test" && l.Exclusive && len(l.Routes)+len(l.Named) == 0
	}) {
		t.Errorf("requests are not closed: %+v", plan.model.HTTP)
	}
}

// GW-37, GW-59: the port of a Service that is cut goes without TLS only if no policy may be for it by its name.
func TestPoliciesOfCutServices(t *testing.T) {
	all, err := stream.NewLocal[service]()
	if err != nil {
		t.Fatal(err)
	}
	s := &service{}
	s.Name, s.Namespace = "web", slim.MakeString("shop")
	for port := range int32(2 * mostPorts) {
		s.Spec.Ports = append(s.Spec.Ports, slim.ServicePort{Port: 1 + port, Name: slim.MakeString(fmt.Sprint("p", port))})
	}
	slim.CutDown(s, 100<<10)
	all.Replace(s)
	c := &controller{}
	if c.services, err = all.Store(t.Context()); err != nil {
		t.Fatal(err)
	}
	policies, err := stream.NewLocal[tlsPolicy]()
	if err != nil {
		t.Fatal(err)
	}
	policies.Replace()
	if c.policyStore, err = policies.Store(t.Context()); err != nil {
		t.Fatal(err)
	}
	lookup := route.Lookup(func(route.Query) route.Answer { return route.Answer{Exists: true, OK: true} })
	for target, want := range map[string][2]bool{ // of the first port, and of one that is not known
		targetRef("web", ""):      {true, true},
		targetRef("web", "p0"):    {true, false},
		targetRef("web", "p1000"): {false, false},
	} {
		policies.Replace(policyFrom(t, "p", target, caGood))
		for i, port := range []int32{1, 2 * mostPorts} {
			a := c.askTLS(route.Query{About: route.AboutTLS, Key: s.Key(), Port: port}, lookup)
			if got := a.TLS != nil; got != want[i] {
				t.Errorf("%s, port %d: %+v", target, port, a)
			}
		}
	}
}
