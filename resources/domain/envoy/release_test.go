// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"github.com/google/go-cmp/cmp"
)

// ENV-E15: a redirect that names neither a scheme nor a port has the port of its listener, also where listeners share the route.
func TestRedirectsToThePortOfTheListener(t *testing.T) {
	o := options
	o.FirstWins, o.PortHosts = true, true
	shared := []NamedRoutes{{[]string{"a.test", "b.test"}, []Route{
		{Path: Match{Exact, "/scheme"}, Redirect: &Redirect{Scheme: "http"}},
		{Path: Match{Exact, "/host"}, Redirect: &Redirect{Host: "n.test"}},
		{Path: Match{Exact, "/port"}, Redirect: &Redirect{Port: 99}},
	}}}
	_, c := translate(t, Model{HTTP: []Listener{
		{Port: 80, RedirectPort: 80, Named: shared}, {Port: 8080, RedirectPort: 8080, Named: shared}, {Port: 8081, Named: shared},
	}}, o)
	got := map[string][]uint32{}
	for _, v := range c.Tables[plainTable].VirtualHosts {
		for _, r := range v.Routes {
			got[v.Domains[0]] = append(got[v.Domains[0]], r.GetRedirect().GetPortRedirect())
		}
	}
	want := map[string][]uint32{
		"a.test": {80, 80, 99}, "b.test": {80, 80, 99}, "a.test:8080": {80, 8080, 99}, "b.test:8080": {80, 8080, 99},
		"a.test:8081": {80, 0, 99}, "b.test:8081": {80, 0, 99},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if shared[0].Routes[1].Redirect.listenerPort != 0 {
		t.Error("a route of a model is changed")
	}
}

// ENV-43; number 42 of the contract's envoy-config.md, and 39 of its gateway-api.md: who came by HTTPS gets the backend.
func TestRedirectsByScheme(t *testing.T) {
	secure := &Route{Redirect: &Redirect{Scheme: "https", Code: 302}}
	served := &Route{Backends: to("v1", "80")}
	const (
		redirect = `redirect: {schemeRedirect: https, portRedirect: 443, responseCode: FOUND}`
		backend  = `{match: {prefix: /}, route: {cluster: "shop:v1:80", maxStreamDuration: {maxStreamDuration: 0s}}}`
		byScheme = `{match: {prefix: /, headers: [{name: X-Forwarded-Proto, invertMatch: true, stringMatch: {exact: https, ignoreCase: true}}]}, ` + redirect + `}`
	)
	for name, test := range map[string]struct {
		routes   []*Route
		byScheme bool
		want     []string
	}{
		"the backend is next":            {[]*Route{secure, served}, true, []string{byScheme, backend}},
		"a redirect alone":               {[]*Route{secure}, true, []string{byScheme}},
		"of two redirects the first":     {[]*Route{secure, {Redirect: &Redirect{Scheme: "https", Code: 301}}}, true, []string{byScheme}},
		"for all requests, up to 1.19":   {[]*Route{secure, served}, false, []string{`{match: {prefix: /}, ` + redirect + `}`}},
		"a redirect that keeps a scheme": {[]*Route{{Redirect: &Redirect{Host: "new"}}, served}, true, []string{`{match: {prefix: /}, redirect: {hostRedirect: new}}`}},
	} {
		t.Run(name, func(t *testing.T) {
			o := options
			o.FirstWins, o.RedirectsByScheme = true, test.byScheme
			result, _ := translate(t, Model{HTTP: []Listener{{Port: 80, Routes: test.routes}}}, o)
			var want []any
			for _, text := range test.want {
				want = append(want, plain(text))
			}
			if diff := cmp.Diff(want, routesOf(t, result.Spec, plainTable, "*")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// ENV-43: the requests that a redirect leaves alone are the owner's, not those of a younger namespace.
func TestRedirectIsOfItsOwner(t *testing.T) {
	m := Model{HTTP: []Listener{
		{Claim: Claim{Of: Name{"old", "a"}, Created: time.Unix(1, 0)}, Hostname: "h", Port: 80, Routes: []*Route{{Source: Name{"old", "a"}, Redirect: &Redirect{Scheme: "https"}}}},
		{Claim: Claim{Of: Name{"new", "a"}, Created: time.Unix(2, 0)}, Hostname: "h", Port: 80, Routes: []*Route{{Source: Name{"new", "a"}, Backends: to("v1", "80")}}},
	}}
	o := options
	o.Owners, o.RedirectsByScheme = true, true
	result, _ := translate(t, m, o)
	if got := routesOf(t, result.Spec, plainTable, "h"); len(got) != 1 || len(result.Problems) != 1 {
		t.Errorf("%d routes, problems %v", len(got), result.Problems)
	}
}

// ENV-44: what statistics of TLS that is passed through are called.
func TestHostsOfTCP(t *testing.T) {
	m := Model{Passthrough: []Passthrough{
		{Hostnames: []string{"b", "a"}, Port: 443, Backends: to("s", "1")},
		{Hostnames: []string{"c"}, Port: 443, Backends: to("s", "2"), Secrets: []Name{{"ns", "c"}}},
	}}
	for hosts, want := range map[bool]string{true: "a,b: tls-passthrough:a,b", false: "a,b: shop:s:1"} {
		o := options
		o.HostsOfTCP = hosts
		_, c := translate(t, m, o)
		var got []string
		for _, chain := range c.Listeners[listenerName].FilterChains {
			tcp := &tcpv3.TcpProxy{}
			if err := chain.Filters[0].GetTypedConfig().UnmarshalTo(tcp); err != nil {
				t.Fatal(err)
			}
			got = append(got, strings.Join(chain.FilterChainMatch.ServerNames, ",")+": "+tcp.StatPrefix)
		}
		if diff := cmp.Diff([]string{want, "c: shop:s:2"}, got); diff != "" {
			t.Error(diff)
		}
	}
}

// ENV-11: what originals write beside it means nothing, and what means something is another spec.
func TestDigestOfOriginals(t *testing.T) {
	const (
		table = `{"@type":"type.googleapis.com/envoy.config.route.v3.RouteConfiguration","name":"listener-insecure"}`
		refer = `{"@type":"type.googleapis.com/envoy.config.listener.v3.Listener","filterChains":[{"rds":{"routeConfigName":"listener-insecure"}}]}`
	)
	spec := func(resources, service string) string {
		return `{"resources":[` + resources + `],"services":[{` + service + `"name":"lb","namespace":"ns"}]}`
	}
	for name, test := range map[string]struct {
		is, want string
		same     bool
	}{
		"no listener":               {spec("", `"listener":"",`), spec("", ""), true},
		"another listener":          {spec("", `"listener":"listener-443",`), spec("", ""), false},
		"a port twice":              {spec("", `"ports":[80,443,443],`), spec("", `"ports":[80,443],`), true},
		"another port":              {spec("", `"ports":[80,443,444],`), spec("", `"ports":[80,443],`), false},
		"an empty table":            {spec(`{"name":"l"},`+table, ""), spec(`{"name":"l"}`, ""), true},
		"an empty table that is of": {spec(refer+","+table, ""), spec(refer, ""), false},
		"a table with hosts":        {spec(strings.Replace(table, `"name"`, `"virtualHosts":[{}],"name"`, 1), ""), spec("", ""), false},
	} {
		is, err := DigestOf([]byte(test.is))
		if err != nil {
			t.Fatal(err)
		}
		if want, err := DigestOf([]byte(test.want)); err != nil || (is == want) != test.same {
			t.Errorf("%s: %v %v, %v", name, is == want, test.same, err)
		}
	}
}

// K3 of the contract's tenants.md: the spec that others write is gone through once, however many route tables it has without hosts. Each was looked for in
// all of it: an object of 1.5 MB cost half a minute at each start.
func TestDigestOfManyEmptyTables(t *testing.T) {
	const many = 16_000
	table := func(n int) string {
		return fmt.Sprintf(`{"@type":"type.googleapis.com/envoy.config.route.v3.RouteConfiguration","name":"%d"}`, n)
	}
	items := []string{`{"routeConfigName":"7","of":[{"routeConfigName":["x"]},{"routeConfigName":{}}]}`, `{"@type":"type.googleapis.com/envoy.config.route.v3.RouteConfiguration","name":{}}`}
	for n := range many {
		items = append(items, table(n))
	}
	began := time.Now()
	got, err := DigestOf([]byte(`{"resources":[` + strings.Join(items, ",") + `]}`))
	if spent := time.Since(began); err != nil || spent > 10*time.Second {
		t.Errorf("after %v: %v", spent, err)
	}
	if want, err := DigestOf([]byte(`{"resources":[` + items[0] + "," + table(7) + `]}`)); err != nil || got != want {
		t.Errorf("tables to which nothing refers count: %v", err)
	}
}
