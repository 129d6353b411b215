// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/domain/envoy/envoytest"
)

var options = Options{
	Service: Name{"shop", "cilium-ingress-web"}, SecretsNamespace: "cilium-secrets", OneLabelWildcards: true,
	Connections: Connections{Idle: time.Minute, Connect: 5 * time.Second},
}

func to(service, port string) []Backend {
	namespace, name, ok := strings.Cut(service, "/")
	if !ok {
		namespace, name = "shop", service
	}
	return []Backend{{Name: Name{namespace, name}, Port: port}}
}

func route(kind MatchKind, path string, backends []Backend) *Route {
	return &Route{Path: Match{kind, path}, Backends: backends}
}

// shop is the model of the worked example.
func shop() Model {
	routes := []*Route{
		route(Prefix, "/", to("front", "80")), route(Prefix, "/api/", to("api", "8080")),
		route(Exact, "/login", to("auth", "8080")), route(Regex, "/img/.*[.]png", to("img", "80")),
	}
	return Model{HTTP: []Listener{
		{Hostname: "shop.example.com", Port: 80, Routes: routes},
		{Hostname: "*.tenant.example.com", Port: 80, Routes: []*Route{route(Prefix, "/", to("front", "80"))}},
		{Hostname: "shop.example.com", Port: 443, TLS: true, ForceHTTPS: true, Secrets: []Name{{"shop", "shop-tls"}}, Routes: routes},
	}}
}

func translate(t *testing.T, m Model, o Options) (Translation, *envoytest.Config) {
	t.Helper()
	result, err := new(Translator).Translate(m, o)
	if err != nil {
		t.Fatal(err)
	}
	c, err := envoytest.Verify(result.Spec)
	if err != nil && !result.Empty {
		t.Fatal(err)
	}
	return result, c
}

func plain(text string) (v any) {
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		panic(err)
	}
	return v
}

func asJSON(v any) any {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return plain(string(text))
}

// resource is one of the resources of a spec, by type and name.
func resource(t *testing.T, spec v2.CiliumEnvoyConfigSpec, kind, name string) map[string]any {
	t.Helper()
	for _, r := range spec.Resources {
		v := plain(string(r.Raw)).(map[string]any)
		if strings.HasSuffix(v["@type"].(string), "."+kind) && v["name"] == name {
			return v
		}
	}
	t.Fatalf("there is no %s %s", kind, name)
	return nil
}

// routes are the routes of a virtual host.
func routesOf(t *testing.T, spec v2.CiliumEnvoyConfigSpec, table, host string) (all []any) {
	t.Helper()
	hosts, _ := resource(t, spec, "RouteConfiguration", table)["virtualHosts"].([]any)
	for _, h := range hosts {
		if h.(map[string]any)["name"] == host {
			return h.(map[string]any)["routes"].([]any)
		}
	}
	return nil
}

// ENV-E1: the worked example.
func TestWorkedExample(t *testing.T) {
	want, err := os.ReadFile("testdata/shop.yaml")
	if err != nil {
		t.Fatal(err)
	}
	result, _ := translate(t, shop(), options)
	if diff := cmp.Diff(plain(string(want)), asJSON(result.Spec)); diff != "" {
		t.Error(diff)
	}
}

// ENV-E2 and ENV-E3: the most specific match first.
func TestPrecedence(t *testing.T) {
	routes := []*Route{
		route(Prefix, "/a", to("s", "1")), route(Prefix, "/", to("s", "2")), route(Exact, "/a", to("s", "3")), route(Prefix, "/a/b", to("s", "4")),
	}
	for range 24 {
		rand.Shuffle(len(routes), func(i, j int) { routes[i], routes[j] = routes[j], routes[i] })
		result, _ := translate(t, Model{HTTP: []Listener{{Port: 80, Routes: routes}}}, options)
		got := fmt.Sprint(pathsOf(routesOf(t, result.Spec, plainTable, "*")))
		if got != "[path=/a pathSeparatedPrefix=/a/b pathSeparatedPrefix=/a prefix=/]" {
			t.Fatal(got)
		}
	}
	get := route(Exact, "/x", to("s", "1"))
	get.Method = "get"
	result, _ := translate(t, Model{HTTP: []Listener{{Port: 80, Routes: []*Route{route(Exact, "/x", to("s", "2")), get}}}}, options)
	first := routesOf(t, result.Spec, plainTable, "*")[0]
	if diff := cmp.Diff(plain(`{match: {path: /x, headers: [{name: ":method", stringMatch: {exact: GET}}]}, route: {cluster: "shop:s:1", maxStreamDuration: {maxStreamDuration: 0s}}}`), first); diff != "" {
		t.Error(diff)
	}
}

func pathsOf(routes []any) (all []string) {
	for _, r := range routes {
		for kind, value := range r.(map[string]any)["match"].(map[string]any) {
			if text, ok := value.(string); ok {
				all = append(all, kind+"="+text)
			}
		}
	}
	return all
}

// ENV-E4 to ENV-E8: hosts, addresses, node selector, trusted hops, the PROXY protocol.
func TestListener(t *testing.T) {
	m := Model{HTTP: []Listener{{Port: 8080, Routes: []*Route{route(Prefix, "/", to("s", "1"))}}}}
	result, c := translate(t, m, options)
	if v := c.Tables[plainTable].VirtualHosts; len(v) != 1 || v[0].Name != "*" || !slices.Equal(v[0].Domains, []string{"*"}) {
		t.Errorf("ENV-E4: %v", v)
	}
	if text := string(result.Spec.Resources[0].Raw); strings.Contains(text, "address") || strings.Contains(text, "xffNumTrustedHops") || result.Spec.NodeSelector != nil {
		t.Errorf("ENV-E7: %s", text)
	}
	o := options
	o.HostNetwork = &HostNetwork{IPv4: true, IPv6: true, NodeSelector: ParseNodeSelector("a=b,c,=d,e=f=g")}
	o.XFFNumTrustedHops, o.ProxyProtocol = 2, true
	m.HTTP = append(m.HTTP, Listener{Port: 8080, Hostname: "h", TLS: true, Secrets: []Name{{"a", "s"}}})
	result, c = translate(t, m, o)
	l := c.Listeners[listenerName]
	if a := l.Address.GetSocketAddress(); a.GetAddress() != "0.0.0.0" || a.GetPortValue() != 8080 || len(l.AdditionalAddresses) != 1 ||
		l.AdditionalAddresses[0].Address.GetSocketAddress().GetAddress() != "::" {
		t.Errorf("ENV-E5: %v %v", l.Address, l.AdditionalAddresses)
	}
	if diff := cmp.Diff(map[string]string{"a": "b"}, result.Spec.NodeSelector.MatchLabels); diff != "" {
		t.Errorf("ENV-E6: %s", diff)
	}
	if n := strings.Count(string(result.Spec.Resources[0].Raw), `"xffNumTrustedHops":2`); n != 2 {
		t.Errorf("ENV-E7: %d", n)
	}
	if f := l.ListenerFilters; len(f) != 2 || f[0].Name != "envoy.filters.listener.proxy_protocol" || f[1].Name != "envoy.filters.listener.tls_inspector" {
		t.Errorf("ENV-E8: %v", f)
	}
	o.HostNetwork.IPv4 = false
	if _, c = translate(t, m, o); c.Listeners[listenerName].Address.GetSocketAddress().GetAddress() != "::" {
		t.Error("ENV-E5: IPv6 alone")
	}
}

// ENV-E9 and ENV-E14: filter chains are by certificates, each host in one.
func TestCertificates(t *testing.T) {
	tls := func(host string, secrets ...string) Listener {
		l := Listener{Hostname: host, Port: 443, TLS: true, Routes: []*Route{route(Prefix, "/", to("s", "1"))}}
		for _, s := range secrets {
			l.Secrets = append(l.Secrets, Name{"ns", s})
		}
		return l
	}
	for name, test := range map[string]struct {
		listeners []Listener
		want      []string
	}{
		"two hosts with one secret": {[]Listener{tls("b", "s"), tls("a", "s")}, []string{"[a b] [cilium-secrets/ns-s]"}},
		"one host with two secrets": {[]Listener{tls("h", "s1"), tls("h", "s2")}, []string{"[h] [cilium-secrets/ns-s1 cilium-secrets/ns-s2]"}},
		"all hosts":                 {[]Listener{tls("", "s"), tls("a", "s"), tls("b", "t")}, []string{"[] [cilium-secrets/ns-s]", "[b] [cilium-secrets/ns-t]"}},
		"no usable secret":          {[]Listener{tls("a"), tls("b", "s")}, []string{"[b] [cilium-secrets/ns-s]"}},
	} {
		t.Run(name, func(t *testing.T) {
			result, _ := translate(t, Model{HTTP: test.listeners}, options)
			var got []string
			for _, chain := range resource(t, result.Spec, "Listener", listenerName)["filterChains"].([]any) {
				var c struct {
					FilterChainMatch struct{ ServerNames []string }
					TransportSocket  struct {
						TypedConfig struct {
							CommonTlsContext struct {
								TlsCertificateSdsSecretConfigs []struct{ Name string }
							}
						}
					}
				}
				text, _ := json.Marshal(chain)
				if err := json.Unmarshal(text, &c); err != nil {
					t.Fatal(err)
				}
				var secrets []string
				for _, s := range c.TransportSocket.TypedConfig.CommonTlsContext.TlsCertificateSdsSecretConfigs {
					secrets = append(secrets, s.Name)
				}
				got = append(got, fmt.Sprint(c.FilterChainMatch.ServerNames, " ", secrets))
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// ENV-E10: the version of HTTP that backends are spoken to with.
func TestUpstreamProtocol(t *testing.T) {
	o := options
	o.AppProtocol = true
	h2c := to("h2c", "1")
	h2c[0].AppProtocol = "kubernetes.io/h2c"
	grpc := route(Prefix, "/g", to("grpc", "1"))
	grpc.GRPC = true
	m := Model{HTTP: []Listener{{Port: 80, Routes: []*Route{route(Prefix, "/a", to("plain", "1")), route(Prefix, "/b", h2c), grpc, route(Prefix, "/c", to("grpc", "1"))}}}}
	result, _ := translate(t, m, o)
	for cluster, want := range map[string]string{
		"shop:plain:1": "{explicitHttpConfig: {httpProtocolOptions: {}}}", "shop:h2c:1": "{explicitHttpConfig: {http2ProtocolOptions: {}}}",
		"shop:grpc:1": "{explicitHttpConfig: {http2ProtocolOptions: {}}}",
	} {
		got := resource(t, result.Spec, "Cluster", cluster)["typedExtensionProtocolOptions"].(map[string]any)[httpOptions].(map[string]any)
		delete(got, "@type")
		delete(got, "commonHttpProtocolOptions")
		if diff := cmp.Diff(plain(want), any(got)); diff != "" {
			t.Errorf("%s: %s", cluster, diff)
		}
	}
}

// ENV-E12: names of Services.
func TestShorten(t *testing.T) {
	for name, want := range map[string]string{
		"cilium-gateway-test-long-long-long-long-long-long-long-long-long-long-long-long-name": "cilium-gateway-test-long-long-long-long-long-long-lo-8tfth549c6",
		strings.Repeat("x", 63): strings.Repeat("x", 63),
	} {
		if got := Shorten(name); got != want || len(got) > 63 {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := Shorten(strings.Repeat("x", 64)); len(got) != 63 || got[52] != '-' {
		t.Error(got)
	}
}

// ENV-E13: equal models have equal bytes, also with what is kept of the last translation.
func TestStable(t *testing.T) {
	kept := new(Translator)
	var last []byte
	for i := range 5 {
		for _, tr := range []*Translator{kept, new(Translator)} {
			result, err := tr.Translate(shop(), options)
			if err != nil {
				t.Fatal(err)
			}
			e, err := Encode(result.Spec)
			if err != nil {
				t.Fatal(err)
			}
			if last != nil && string(last) != string(e.JSON) {
				t.Fatalf("translation %d differs", i)
			}
			last = e.JSON
			reordered, err := json.MarshalIndent(plain(string(e.JSON)), "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			if d, err := DigestOf(reordered); err != nil || d != e.Digest {
				t.Error("the digest depends on white space")
			}
		}
	}
	if !reflect.DeepEqual(kept.hosts.now, kept.hosts.last) && len(kept.hosts.now) != 3 {
		t.Errorf("%d hosts are kept", len(kept.hosts.now))
	}
}

// ENV-E11 and ENV-E15: what a route does, as Envoy has it.
func TestActions(t *testing.T) {
	text := func(s string) *string { return &s }
	second := func(n int) *time.Duration { return new(time.Duration(n) * time.Second) }
	for name, test := range map[string]struct {
		of   Route
		want string
	}{
		"no timeout":       {Route{}, `{match: {prefix: /}, route: {cluster: "shop:v1:80", maxStreamDuration: {maxStreamDuration: 0s}}}`},
		"a timeout":        {Route{RequestTimeout: second(10)}, `{match: {prefix: /}, route: {cluster: "shop:v1:80", timeout: 10s}}`},
		"the smaller one":  {Route{RequestTimeout: second(10), BackendTimeout: second(2)}, `{match: {prefix: /}, route: {cluster: "shop:v1:80", timeout: 2s}}`},
		"of a backend, 0":  {Route{BackendTimeout: second(0)}, `{match: {prefix: /}, route: {cluster: "shop:v1:80", timeout: 0s}}`},
		"a prefix":         {Route{Path: Match{Prefix, "/old/"}, Rewrite: &Rewrite{Host: "int", PrefixPath: text("/new/")}}, `{match: {pathSeparatedPrefix: /old}, route: {cluster: "shop:v1:80", hostRewriteLiteral: int, prefixRewrite: /new, maxStreamDuration: {maxStreamDuration: 0s}}}`},
		"a prefix removed": {Route{Path: Match{Prefix, "/strip"}, Rewrite: &Rewrite{PrefixPath: text("/")}}, `{match: {pathSeparatedPrefix: /strip}, route: {cluster: "shop:v1:80", regexRewrite: {pattern: {regex: "^/strip(/?)(.*)"}, substitution: '/\2'}, maxStreamDuration: {maxStreamDuration: 0s}}}`},
		"a prefix added":   {Route{Rewrite: &Rewrite{PrefixPath: text("/new")}}, `{match: {prefix: /}, route: {cluster: "shop:v1:80", regexRewrite: {pattern: {regex: "^/(.*)"}, substitution: '/new/\1'}, maxStreamDuration: {maxStreamDuration: 0s}}}`},
		"the whole path":   {Route{Path: Match{Prefix, "/full"}, Rewrite: &Rewrite{CompletePath: text("/one")}}, `{match: {pathSeparatedPrefix: /full}, route: {cluster: "shop:v1:80", regexRewrite: {pattern: {regex: "^/.*$"}, substitution: /one}, maxStreamDuration: {maxStreamDuration: 0s}}}`},
		"a redirect":       {Route{Redirect: &Redirect{Host: "n.example.com", Code: 301}}, `{match: {prefix: /}, redirect: {hostRedirect: n.example.com}}`},
		"to HTTPS":         {Route{Redirect: &Redirect{Scheme: "https", Code: 302}}, `{match: {prefix: /}, redirect: {schemeRedirect: https, portRedirect: 443, responseCode: FOUND}}`},
		"to a port":        {Route{Redirect: &Redirect{Scheme: "http", Port: 8080, Code: 999, CompletePath: text("/x")}}, `{match: {prefix: /}, redirect: {schemeRedirect: http, portRedirect: 8080, pathRedirect: /x}}`},
		"to a prefix":      {Route{Path: Match{Prefix, "/a"}, Redirect: &Redirect{Code: 308, PrefixPath: text("")}}, `{match: {pathSeparatedPrefix: /a}, redirect: {responseCode: PERMANENT_REDIRECT, regexRewrite: {pattern: {regex: "^/a(/?)(.*)"}, substitution: '/\2'}}}`},
		"mirrors": {Route{Mirrors: []Mirror{{Backend: to("v2", "80")[0]}, {Backend: to("v3", "80")[0], Numerator: 1, Denominator: 8}, {Backend: to("v4", "80")[0], Numerator: 2, Denominator: 4}}}, `{match: {prefix: /}, route: {cluster: "shop:v1:80", requestMirrorPolicies: [
			{cluster: "shop:v2:80", runtimeFraction: {defaultValue: {numerator: 100}}}, {cluster: "shop:v3:80", runtimeFraction: {defaultValue: {numerator: 125000, denominator: MILLION}}}, {cluster: "shop:v4:80", runtimeFraction: {defaultValue: {numerator: 50}}}], maxStreamDuration: {maxStreamDuration: 0s}}}`},
		"headers": {Route{RequestHeaders: &HeaderEdit{Set: []Header{{"S", "2"}}, Add: []Header{{"A", "1"}}, Remove: []string{"R"}}}, `{match: {prefix: /}, requestHeadersToAdd: [{header: {key: A, value: "1"}}, {appendAction: OVERWRITE_IF_EXISTS_OR_ADD, header: {key: S, value: "2"}}],
			requestHeadersToRemove: [R], route: {cluster: "shop:v1:80", maxStreamDuration: {maxStreamDuration: 0s}}}`},
		"weights": {Route{Backends: []Backend{{Name: Name{"shop", "v1"}, Port: "80", Weight: new(uint32(9)), RequestHeaders: &HeaderEdit{Set: []Header{{"B", "b"}}}}, to("v2", "80")[0]}}, `{match: {prefix: /}, route: {weightedClusters: {clusters: [
			{name: "shop:v1:80", weight: 9, requestHeadersToAdd: [{appendAction: OVERWRITE_IF_EXISTS_OR_ADD, header: {key: B, value: b}}]}, {name: "shop:v2:80", weight: 1}]}, maxStreamDuration: {maxStreamDuration: 0s}}}`},
		"no weight": {Route{Backends: []Backend{{Name: Name{"shop", "v1"}, Port: "80", Weight: new(uint32(0))}}}, `{match: {prefix: /}, directResponse: {status: 500, body: {inlineString: ""}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			if test.of.Backends == nil {
				test.of.Backends = to("v1", "80")
			}
			result, _ := translate(t, Model{HTTP: []Listener{{Port: 80, Routes: []*Route{&test.of}}}}, options)
			if diff := cmp.Diff(plain(strings.ReplaceAll(test.want, "\t", "")), routesOf(t, result.Spec, plainTable, "*")[0]); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// ENV-19: a percent sign that Envoy would refuse is one, and what it replaces stays.
func TestFormatted(t *testing.T) {
	for value, want := range map[string]string{
		"a": "a", "100%": "100%%", "100%%": "100%%", "%": "%%", "5% of 10%": "5%% of 10%%", "a%20b%2Fc": "a%%20b%%2Fc",
		"%DOWNSTREAM_REMOTE_ADDRESS%": "%DOWNSTREAM_REMOTE_ADDRESS%", "%REQ(X-A?X-B):5%, 7%": "%REQ(X-A?X-B):5%, 7%%", "%%%": "%%%%",
		"%FOO%": "%%FOO%%", "%ENVIRONMENT(HOME)%": "%%ENVIRONMENT(HOME)%%", "%REQ%": "%%REQ%%", "%REQ()%": "%%REQ()%%", "%REQ(a?b?c)%": "%%REQ(a?b?c)%%",
		"%REQ(a):99999999999%": "%%REQ(a):99999999999%%", "%START_TIME(%1f)%": "%%START_TIME(%%1f)%%", "%HOSTNAME()%": "%%HOSTNAME()%%", "%PROTOCOL%%": "%PROTOCOL%%%",
		"%req(a)%": "%%req(a)%%", "%REQ(:PATH)%": "%REQ(:PATH)%", "%RESPONSE_CODE%": "%RESPONSE_CODE%", "%DYNAMIC_METADATA(a:b)%": "%%DYNAMIC_METADATA(a:b)%%",
	} {
		if got := formatted(value); got != want {
			t.Errorf("%s: %s, want %s", value, got, want)
		}
	}
}

// ENV-31; number 40 of the contract's gateway-api.md, and 49 of its envoy-config.md: what Envoy refuses of a route is left out, and named.
func TestRefusedRoutes(t *testing.T) {
	edit := func(name, value string) *HeaderEdit { return &HeaderEdit{Set: []Header{{name, value}}} }
	edited, answered := to("s", "80"), append(to("s", "80"), to("s2", "80")...)
	edited[0].RequestHeaders = &HeaderEdit{Remove: []string{"HOST"}}
	answered[1].ResponseHeaders = &HeaderEdit{Add: []Header{{":status", "200"}}}
	text := func(s string) *string { return &s }
	for name, r := range map[string]*Route{
		"Host is set":                   {RequestHeaders: edit("Host", "a.test")},
		"host of a response is set":     {ResponseHeaders: edit("host", "a.test")},
		"Host is added":                 {RequestHeaders: &HeaderEdit{Add: []Header{{"hOsT", "a"}}}},
		"a pseudo header":               {RequestHeaders: edit(":path", "/")},
		"a pseudo header is removed":    {RequestHeaders: &HeaderEdit{Remove: []string{":authority"}}},
		"Host is removed":               {RequestHeaders: &HeaderEdit{Remove: []string{"Host"}}},
		"a pseudo header is added":      {RequestHeaders: &HeaderEdit{Add: []Header{{":method", "GET"}}}},
		"one of a response is removed":  {ResponseHeaders: &HeaderEdit{Remove: []string{":status"}}},
		"Host of a backend's requests":  {Backends: edited},
		"one of a backend's responses":  {Backends: answered},
		"a long name is removed":        {RequestHeaders: &HeaderEdit{Remove: []string{strings.Repeat("a", 16_385)}}},
		"a line break in a value":       {ResponseHeaders: edit("x", "a\r\nb")},
		"no name":                       {ResponseHeaders: &HeaderEdit{Remove: []string{""}}},
		"a line break in a path":        {Rewrite: &Rewrite{PrefixPath: text("/a\nb")}, Path: Match{Prefix, "/x"}},
		"a line break in a redirection": {Redirect: &Redirect{CompletePath: text("/a\nb")}},
		"an expression without an end":  {Path: Match{Regex, "("}},
	} {
		r.Source = Name{"ns", "bad"}
		if len(r.Backends) == 0 {
			r.Backends = to("s", "80")
		}
		if err := r.Check(0); err == nil {
			t.Errorf("%s: it is taken", name)
		}
		good := route(Prefix, "/good", to("s", "80"))
		m := Model{HTTP: []Listener{{Port: 80, Routes: []*Route{r, good}}}}
		result, c := translate(t, m, options)
		if hosts := c.Tables[plainTable].VirtualHosts; len(hosts) != 1 || len(hosts[0].Routes) != 1 || len(result.Problems) != 1 || result.Problems[0].Source != r.Source {
			t.Errorf("%s: problems %v, hosts %v", name, result.Problems, hosts)
		}
	}
	whole := Route{Rewrite: &Rewrite{CompletePath: text(`/x\1`)}, Backends: to("s", "80")}
	if err := whole.Check(0); err != nil || whole.action().GetRegexRewrite().GetSubstitution() != `/x\\1` {
		t.Errorf("%v, %s", err, whole.action().GetRegexRewrite().GetSubstitution())
	}
}

// ENV-16: the host of an exclusive listener is served by its routes alone, also without any; and the first of equal routes
// takes all requests.
func TestExclusive(t *testing.T) {
	m := Model{HTTP: []Listener{
		{Port: 80, Routes: []*Route{route(Prefix, "/", to("s", "1")), route(Prefix, "/", to("s", "2"))}},
		{Hostname: "a.example.com", Port: 80, Exclusive: true},
	}}
	o := options
	o.FirstWins = true
	_, c := translate(t, m, o)
	hosts := c.Tables[plainTable].VirtualHosts
	if len(hosts) != 2 || hosts[1].Name != "a.example.com" || len(hosts[1].Routes) != 0 {
		t.Errorf("%v", hosts)
	}
	if r := hosts[0].Routes; len(r) != 1 || r[0].GetRoute().GetCluster() != "shop:s:1" {
		t.Errorf("%v", r)
	}
}

// ENV-20: several ports for HTTP are told apart by the port in Host.
func TestPortHosts(t *testing.T) {
	at := func(port uint32, hostname, backend string) Listener {
		return Listener{Port: port, Hostname: hostname, Exclusive: true, Routes: []*Route{route(Prefix, "/", to("s", backend))}}
	}
	m := Model{HTTP: []Listener{at(80, "", "1"), at(80, "a.com", "2"), at(8080, "", "3"), at(8080, "a.com", "4"), at(8080, "*.b.com", "5"), at(80, "*.b.com", "6")}}
	o := options
	o.FirstWins, o.PortHosts = true, true
	shown := func(m Model) (all []string) {
		result, c := translate(t, m, o)
		for _, v := range c.Tables[plainTable].VirtualHosts {
			last := v.Routes[len(v.Routes)-1]
			all = append(all, fmt.Sprint(v.Domains, " ", strings.TrimPrefix(last.GetRoute().GetCluster(), "shop:s:")))
		}
		return append(all, fmt.Sprint(result.Spec.Services[0].Ports, c.Tables[plainTable].IgnorePortInHostMatching))
	}
	want := []string{"[*] 1", "[*:8080] 3", "[*.b.com] 6", "[*.b.com:8080] 5", "[a.com a.com:*] 2", "[a.com:8080] 4", "[80 8080] false"}
	if diff := cmp.Diff(want, shown(m)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"[*] 3", "[*.b.com *.b.com:*] 5", "[a.com a.com:*] 4", "[8080] true"}, shown(Model{HTTP: m.HTTP[2:5]})); diff != "" {
		t.Errorf("one port: %s", diff)
	}
	m.HTTP[0].Port, m.HTTP[1].Port, m.HTTP[5].Port = 9090, 9090, 9090
	if got := shown(m)[0]; got != "[*] 3" {
		t.Errorf("without the port of the scheme, the lowest one is the main port: %s", got)
	}
}

// ENV-21: TLS that is terminated for no HTTP; and a host without backends, whose connections are closed.
func TestTCP(t *testing.T) {
	m := Model{Passthrough: []Passthrough{
		{Hostnames: []string{"a"}, Port: 443, Backends: to("s", "1"), Secrets: []Name{{"ns", "c"}}},
		{Hostnames: []string{"b"}, Port: 443, Backends: to("s", "1")},
		{Hostnames: []string{"c"}, Port: 443},
		{Hostnames: []string{"c", "d"}, Port: 443, Backends: to("s", "1")},
	}}
	o := options
	o.FirstWins = true
	_, c := translate(t, m, o)
	got := map[string]string{}
	for _, chain := range c.Listeners[listenerName].FilterChains {
		got[strings.Join(chain.FilterChainMatch.ServerNames, " ")] = fmt.Sprint(len(chain.Filters), " ", chain.TransportSocket != nil)
	}
	if diff := cmp.Diff(map[string]string{"a": "1 true", "b d": "1 false"}, got); diff != "" {
		t.Error(diff)
	}
	_, c = translate(t, Model{Passthrough: m.Passthrough[2:3]}, o)
	if chains := c.Listeners[listenerName].FilterChains; len(chains) != 1 || len(chains[0].Filters) != 0 {
		t.Errorf("a host without backends, and nothing else: %v", chains)
	}
	if result, _ := translate(t, Model{Passthrough: m.Passthrough[2:3]}, options); !result.Empty {
		t.Error("without the first that wins, a host without backends is not served")
	}
}

// ENV-21 and ENV-16: TLS of a host that has no backend, or no route, is not that of a wider name, with or without the first that wins.
func TestClosed(t *testing.T) {
	wide := Passthrough{Hostnames: []string{"*.test"}, Port: 443, Backends: to("s", "1")}
	ended := Listener{Hostname: "*.test", Port: 443, TLS: true, Secrets: []Name{{"ns", "c"}}, Routes: []*Route{route(Prefix, "/", to("s", "1"))}}
	for _, firstWins := range []bool{false, true} {
		o := options
		o.FirstWins = firstWins
		for name, m := range map[string]Model{
			"no backend, passed":     {Passthrough: []Passthrough{wide, {Hostnames: []string{"a.test"}, Port: 443}}},
			"no backend, terminated": {HTTP: []Listener{ended}, Passthrough: []Passthrough{{Hostnames: []string{"a.test"}, Port: 443}}},
			"no route, passed":       {Passthrough: []Passthrough{wide, {Hostnames: []string{"a.test"}, Port: 443, Exclusive: true}}},
			"no route, terminated":   {HTTP: []Listener{ended}, Passthrough: []Passthrough{{Hostnames: []string{"a.test"}, Port: 443, Exclusive: true}}},
		} {
			_, c := translate(t, m, o)
			chain, _ := envoytest.ChainFor(c.Listeners[listenerName].FilterChains, true, "a.test")
			if other, _ := envoytest.ChainFor(c.Listeners[listenerName].FilterChains, true, "b.test"); len(chain.Filters) != 0 || other == nil || len(other.Filters) == 0 {
				t.Errorf("%s, first wins %t: %v, others %v", name, firstWins, chain, other)
			}
		}
		_, c := translate(t, Model{Passthrough: []Passthrough{{Hostnames: []string{"b.test"}, Port: 443, Backends: to("s", "1")}, {Hostnames: []string{"a.test"}, Port: 8443, Exclusive: true}}}, o)
		if got := len(c.Listeners[listenerName].FilterChains); got != 1 {
			t.Errorf("without a wider name there are %d chains", got)
		}
	}
}

// Number 41 of the contract's envoy-config.md; ENV-6: backends of TLS that is passed through have one chain, with their weights.
func TestWeightsOfTCP(t *testing.T) {
	weighted := func(name string, weight uint32) Backend {
		return Backend{Name: Name{"shop", name}, Port: "443", Weight: &weight}
	}
	m := Model{Passthrough: []Passthrough{{Hostnames: []string{"a"}, Port: 443, Backends: []Backend{weighted("s1", 9), weighted("s2", 1), weighted("s3", 0)}}}}
	_, c := translate(t, m, perPort())
	chains := c.Listeners[listenerName].FilterChains
	if len(chains) != 1 || len(c.Clusters) != 2 {
		t.Fatalf("%d chains, clusters %v", len(chains), c.Clusters)
	}
	proxy := &tcpv3.TcpProxy{}
	if err := chains[0].Filters[0].GetTypedConfig().UnmarshalTo(proxy); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range proxy.GetWeightedClusters().GetClusters() {
		got = append(got, fmt.Sprint(w.Name, "=", w.Weight))
	}
	if diff := cmp.Diff([]string{"shop:s1:443=9", "shop:s2:443=1"}, got); diff != "" {
		t.Error(diff)
	}
}

// ENV-7: the share of backends that are not valid is answered without one.
func TestLostShare(t *testing.T) {
	r := route(Prefix, "/", to("s", "1"))
	r.Backends[0].Weight, r.Lost = new(uint32(3)), 1
	_, c := translate(t, Model{HTTP: []Listener{{Port: 80, Routes: []*Route{r}}}}, options)
	routes := c.Tables[plainTable].VirtualHosts[0].Routes
	if len(routes) != 2 || routes[0].GetDirectResponse().GetStatus() != 500 || routes[0].Match.RuntimeFraction.DefaultValue.Numerator != 250_000 || routes[1].GetRoute().GetCluster() != "shop:s:1" {
		t.Errorf("%v", routes)
	}
}

// ENV-1: requests for a wildcard host have any port; tables without one are as the original writes them.
func TestPortOfWildcard(t *testing.T) {
	for _, firstWins := range []bool{false, true} {
		o := options
		o.FirstWins = firstWins
		for host, want := range map[string]bool{"*.example.com": true, "a.example.com": false, "": false} {
			_, c := translate(t, Model{HTTP: []Listener{{Hostname: host, Port: 8080, Routes: []*Route{route(Prefix, "/", to("s", "1"))}}}}, o)
			if got := c.Tables[plainTable].IgnorePortInHostMatching; got != want {
				t.Errorf("%q, first wins %t: %t", host, firstWins, got)
			}
		}
	}
}

// ENV-4: an object whose plain routes another one has redirected to HTTPS is to know; one that asks for it itself has nothing to know.
func TestRedirectedByAnother(t *testing.T) {
	of := func(name, backend string) []*Route {
		r := route(Prefix, "/a", to(backend, "80"))
		r.Source = Name{"shop", name}
		return []*Route{r}
	}
	forced, plain, both := of("forced", "s1"), of("plain", "s2"), of("both", "s3")
	secure := func(routes []*Route) Listener {
		return Listener{Hostname: "h", Port: 443, TLS: true, ForceHTTPS: true, Secrets: []Name{{"shop", "t"}}, Routes: routes}
	}
	m := Model{HTTP: []Listener{
		{Hostname: "h", Port: 80, Routes: forced}, secure(forced), {Hostname: "h", Port: 80, Routes: plain}, {Hostname: "h", Port: 80, Routes: both}, secure(both),
	}}
	result, _ := translate(t, m, options)
	want := []Problem{{Source: Name{"shop", "plain"}, Message: `path "/a" of host h is not served without TLS: shop/forced has it redirected to HTTPS`}}
	if diff := cmp.Diff(want, result.Problems); diff != "" {
		t.Error(diff)
	}
}

// ENV-1: a host of which all routes are left out is not served by a wider name.
func TestHostWithoutValidRoutes(t *testing.T) {
	m := Model{HTTP: []Listener{
		{Hostname: "*.example.com", Port: 80, Routes: []*Route{route(Prefix, "/", to("s", "80"))}},
		{Hostname: "a.example.com", Port: 80, Routes: []*Route{route(Regex, "/bad[", to("s", "80"))}},
	}}
	result, c := translate(t, m, options)
	if got := answerOf(t, c.Tables[plainTable], "a.example.com", "/"); got != "404" || len(result.Problems) != 1 {
		t.Errorf("%s %v", got, result.Problems)
	}
}

// ENV-41: where several ports have wildcards, the routes for a wildcard of the main port are those for ports of no listener, too, and nothing
// of a wider name is. Hosts below it are named with each port.
func TestWildcardsAtSeveralPorts(t *testing.T) {
	at := func(port uint32, hostname, backend string) Listener {
		return Listener{Port: port, Hostname: hostname, Exclusive: true, Routes: []*Route{route(Exact, "/p", to("s", backend))}}
	}
	m := Model{HTTP: []Listener{at(80, "", "all"), at(80, "*.b.com", "b"), at(80, "a.b.com", "a"), at(8080, "x.com", "x")}}
	o := options
	o.FirstWins, o.PortHosts = true, true
	_, c := translate(t, m, o)
	table := c.Tables[plainTable]
	for host, want := range map[string]string{
		"z.b.com": "b", "Z.B.com:80": "b", "z.b.com:8080": "b", "z.b.com:9": "b", "a.b.com": "a", "a.b.com:80": "a", "a.b.com:8080": "a", "a.b.com:9": "a",
		"b.com:9": "all", "x.com": "all", "x.com:8080": "x", "x.com:9": "all",
	} {
		if got := answerOf(t, table, host, "/p"); got != "shop:s:"+want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
	if got := answerOf(t, table, "z.b.com:9", "/other"); got != "404" {
		t.Errorf("what the wildcard has no route for: %s", got)
	}
	m.HTTP[0].Routes = []*Route{route(Prefix, "/", to("s", "all"))}
	for _, host := range []string{"z.b.com", "z.b.com:80", "z.b.com:9"} {
		if _, c = translate(t, m, o); answerOf(t, c.Tables[plainTable], host, "/other") != "404" {
			t.Errorf("%s: what the wildcard has no route for is served by all", host)
		}
	}
}

// ENV-17, number 43 of the contract's envoy-config.md: retries, with the timeout of each attempt and of all.
func TestRetry(t *testing.T) {
	r := route(Prefix, "/", to("s", "1"))
	r.Retry = &Retry{Attempts: new(uint32(3)), Codes: []uint32{500, 503}, Backoff: 100 * time.Millisecond}
	r.RequestTimeout, r.BackendTimeout = new(10*time.Second), new(2*time.Second)
	_, c := translate(t, Model{HTTP: []Listener{{Port: 80, Routes: []*Route{r}}}}, options)
	got := c.Tables[plainTable].VirtualHosts[0].Routes[0].GetRoute()
	if p := got.RetryPolicy; got.Timeout.AsDuration() != 10*time.Second || p.NumRetries.Value != 3 || p.PerTryTimeout.AsDuration() != 2*time.Second ||
		p.RetryOn != "retriable-status-codes,connect-failure,reset,refused-stream" || len(p.RetriableStatusCodes) != 2 ||
		p.RetryBackOff.BaseInterval.AsDuration() != 100*time.Millisecond || p.RetryBackOff.MaxInterval.AsDuration() != 200*time.Millisecond {
		t.Errorf("%v", got)
	}
	once := route(Prefix, "/", to("s", "1"))
	once.Retry = &Retry{Codes: []uint32{503}}
	_, c = translate(t, Model{HTTP: []Listener{{Port: 80, Routes: []*Route{once}}}}, options)
	if p := c.Tables[plainTable].VirtualHosts[0].Routes[0].GetRoute().RetryPolicy; p.NumRetries != nil {
		t.Errorf("without a number there is one: %v", p)
	}
}

// ENV-12: a configuration that is too large for an object is not written.
func TestTooLarge(t *testing.T) {
	m := Model{HTTP: []Listener{{Port: 80}}}
	for i := range 4_000 {
		m.HTTP[0].Routes = append(m.HTTP[0].Routes, route(Exact, fmt.Sprintf("/some/rather/long/path/of/a/route/%d", i), to(fmt.Sprint("s", i), "80")))
	}
	result, err := new(Translator).Translate(m, options)
	if err != nil {
		t.Fatal(err)
	}
	var tooLarge *TooLargeError
	if _, err := Encode(result.Spec); !errors.As(err, &tooLarge) || tooLarge.Size < MaxSize {
		t.Errorf("%v", err)
	}
}
