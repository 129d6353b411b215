// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/domain/envoy/envoytest"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// together is a Gateway whose ports with TLS are one listener of Envoy, by the section names of its listeners.
const together = `{metadata: {name: edge, namespace: infra}, spec: {listeners: [
	{name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}, allowedRoutes: {namespaces: {from: All}}},
	{name: https-wild, port: 443, protocol: HTTPS, hostname: "*.c.test", tls: {certificateRefs: [{name: cert}]}, allowedRoutes: {namespaces: {from: All}}},
	{name: tls, port: 8443, protocol: TLS, tls: {mode: Passthrough}, allowedRoutes: {namespaces: {from: All}}},
	{name: tls-wild, port: 8443, protocol: TLS, hostname: "*.b.test", tls: {mode: Passthrough}, allowedRoutes: {namespaces: {from: All}}},
	{name: more, port: 9443, protocol: TLS, tls: {mode: Passthrough}, allowedRoutes: {namespaces: {from: All}}},
	{name: ended, port: 9444, protocol: TLS, tls: {certificateRefs: [{name: cert}]}, allowedRoutes: {namespaces: {from: All}}}]}}`

var togetherObjects = objects{
	services: map[slim.Key]bool{{Namespace: "aa", Name: "s"}: true, {Namespace: "bb", Name: "s"}: true},
	secrets:  map[slim.Key]bool{{Namespace: "infra", Name: "cert"}: true},
}

// GW-52, K1 of the contract's tenants.md: where agents have one listener of Envoy for all ports, a TLSRoute of a younger namespace does not have connections to
// the port of an older route: its name would be the nearer one.
func TestNearerNamesAtOtherPorts(t *testing.T) {
	g := parse[gateway](t, together)
	const kind, https, tls, more = "TLSRoute/tlsroute-5 at %s: UnsupportedValue", "https", "tls", "more"
	for name, test := range map[string]struct {
		older, younger *route.Route
		refused        string // where the younger one is
	}{
		"all hosts of HTTPS":          {routeOf(t, route.KindHTTP, "aa", 1, https, ""), routeOf(t, route.KindTLS, "bb", 5, tls, "a.test"), tls},
		"a wildcard of HTTPS":         {routeOf(t, route.KindHTTP, "aa", 1, https, "'*.test'"), routeOf(t, route.KindTLS, "bb", 5, tls, "d.test"), tls},
		"a wildcard of the listener":  {routeOf(t, route.KindHTTP, "aa", 1, "https-wild", ""), routeOf(t, route.KindTLS, "bb", 5, tls, "a.c.test"), tls},
		"a wildcard for its host":     {routeOf(t, route.KindHTTP, "aa", 1, https, "a.test"), routeOf(t, route.KindTLS, "bb", 5, tls, "'*.test'"), tls},
		"another host":                {routeOf(t, route.KindHTTP, "aa", 1, https, "a.test"), routeOf(t, route.KindTLS, "bb", 5, tls, "b.test"), ""},
		"the listener's is nearer":    {routeOf(t, route.KindHTTP, "aa", 1, "https-wild", "a.c.test"), routeOf(t, route.KindTLS, "bb", 5, more, "'*.test'"), ""},
		"one namespace":               {routeOf(t, route.KindHTTP, "aa", 1, https, ""), routeOf(t, route.KindTLS, "aa", 5, tls, "a.test"), ""},
		"a wildcard passed through":   {routeOf(t, route.KindTLS, "aa", 1, tls, "'*.test'"), routeOf(t, route.KindTLS, "bb", 5, more, "a.test"), more},
		"a host passed through":       {routeOf(t, route.KindTLS, "aa", 1, tls, "a.test"), routeOf(t, route.KindTLS, "bb", 5, more, "'*.test'"), ""},
		"a nearer name at one port":   {routeOf(t, route.KindTLS, "aa", 1, tls, "'*.test'"), routeOf(t, route.KindTLS, "bb", 5, tls, "a.test"), ""},
		"the older one has the other": {routeOf(t, route.KindHTTP, "aa", 9, https, ""), routeOf(t, route.KindTLS, "bb", 5, tls, "a.test"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			routes := []*route.Route{test.younger, test.older}
			plan := (&planner{oneListener: true}).plan(g, nil, routes, togetherObjects.lookup)
			var want []string
			if test.refused != "" {
				want = []string{fmt.Sprintf("bb/"+kind, test.refused)}
			}
			if diff := cmp.Diff(want, refusedBy(plan)); diff != "" {
				t.Error(diff)
			}
			for _, byListener := range plan.refused {
				for _, why := range byListener {
					if why.By == nil || why.By.ID() != test.older.ID() || !strings.Contains(why.Message, test.older.Source().String()) {
						t.Errorf("refused by %v: %s", why.By, why.Message)
					}
				}
			}
			for _, p := range []planner{{}, {oneListener: true, joins: true}} {
				if got := refusedBy(p.plan(g, nil, routes, togetherObjects.lookup)); len(got) > 0 {
					t.Errorf("ports apart %t, joined %t: %v", !p.oneListener, p.joins, got)
				}
			}
		})
	}
}

// GW-52, for random routes of two namespaces: what younger ones have at other ports changes nothing of what becomes of connections to the older ones' port.
func TestOtherPortsChangeNothing(t *testing.T) {
	n := 250
	switch {
	case seedtest.Soak():
		n = 20_000
	case testing.Short() || seedtest.RaceEnabled:
		n = 60
	}
	r, g := rand.New(rand.NewPCG(seedtest.Seed(t), 1)), parse[gateway](t, together)
	ports := [][]string{{"https", "https-wild"}, {"tls", "tls-wild"}, {"more"}, {"ended"}}
	served := func(routes []*route.Route) *envoytest.Config {
		plan := (&planner{oneListener: true}).plan(g, nil, routes, togetherObjects.lookup)
		of, err := new(envoy.Translator).Translate(plan.model, envoy.Options{Service: envoy.Name{Namespace: "infra", Name: "s"}, SecretsNamespace: "x", FirstWins: true, ByAge: true, PortHosts: true})
		if err != nil {
			t.Fatal(err)
		}
		c, err := envoytest.Verify(of.Spec)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	some := func(namespace string, second int, sections []string) *route.Route {
		section, kind := sections[r.IntN(len(sections))], route.KindTLS
		if strings.HasPrefix(section, "https") {
			kind = route.KindHTTP
		}
		hosts := []string{"a.test", "a.c.test", "a.b.test", "'*.test'", "'*.b.test'", "'*.c.test'", "a.test, '*.b.test'", ""}
		return routeOf(t, kind, namespace, second, section, hosts[r.IntN(len(hosts))])
	}
	for i := range n {
		at := r.IntN(len(ports))
		var older, younger []*route.Route
		for second := range 1 + r.IntN(2) {
			older = append(older, some("aa", second, ports[at]))
		}
		for second := range 1 + r.IntN(3) {
			younger = append(younger, some("bb", 10+second, ports[(at+1+r.IntN(len(ports)-1))%len(ports)]))
		}
		alone, both := served(older), served(slices.Concat(younger, older))
		for _, host := range []string{"a.test", "a.b.test", "c.b.test", "a.c.test", "c.c.test", "c.test", "other.example"} {
			was, is := alone.Answer("listener", true, host, "/"), both.Answer("listener", true, host, "/")
			if strings.Contains(was.To, "aa:") && was.String() != is.String() {
				t.Fatalf("%d: TLS %s: %s, was %s\n%s", i, host, is, was, describe(&tenant{routes: older}, &tenant{routes: younger}))
			}
		}
	}
}
