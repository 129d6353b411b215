// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	extauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/skep-operator/skep/resources/domain/envoy/envoytest"
)

func guarded(path string, by *ExternalAuth) *Route {
	return &Route{Source: Name{"shop", "r"}, Path: Match{Prefix, path}, Backends: to("v1", "80"), Auth: by}
}

func askAt(path string) *ExternalAuth {
	return &ExternalAuth{Server: to("auth", "9000")[0], Path: path}
}

// filtersOf are the filters for authorization of a listener, in their order, with where they are.
func filtersOf(t *testing.T, c *envoytest.Config, chain int) (names []string, configs []*extauthzv3.ExtAuthz) {
	t.Helper()
	m := &hcmv3.HttpConnectionManager{}
	if err := c.Listeners[listenerName].FilterChains[chain].Filters[0].GetTypedConfig().UnmarshalTo(m); err != nil {
		t.Fatal(err)
	}
	for _, f := range m.HttpFilters {
		name := strings.TrimPrefix(f.Name, "envoy.filters.http.")
		if names = append(names, name); strings.HasPrefix(name, "ext_authz") {
			config := &extauthzv3.ExtAuthz{}
			if err := f.GetTypedConfig().UnmarshalTo(config); err != nil {
				t.Fatal(err)
			}
			configs = append(configs, config)
		}
	}
	return names, configs
}

// switchedOff are the filters that each route of a host switches off: by its prefix, or what else it is.
func switchedOff(t *testing.T, hosts []*routev3.VirtualHost) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, host := range hosts {
		for _, r := range host.Routes {
			var names []string
			for name, text := range r.TypedPerFilterConfig {
				per := &extauthzv3.ExtAuthzPerRoute{}
				if err := text.UnmarshalTo(per); err != nil || !per.GetDisabled() {
					t.Errorf("%s: %v, %v", name, per, err)
				}
				_, after, _ := strings.Cut(name, "/")
				names = append(names, after)
			}
			slices.Sort(names)
			key := r.Match.GetPathSeparatedPrefix() + r.Match.GetPrefix()
			if d := r.GetDirectResponse(); d != nil {
				key += fmt.Sprint(" ", d.Status)
			}
			all[key] = strings.Join(names, " ")
		}
	}
	return all
}

// ENV-45; numbers 45 of the contract's envoy-config.md and 42 of its gateway-api.md.
func TestExternalAuth(t *testing.T) {
	m := Model{HTTP: []Listener{{Port: 80, Routes: []*Route{
		guarded("/1", askAt("/a")), guarded("/2", askAt("/b")), guarded("/3", nil),
		{Source: Name{"shop", "r"}, Path: Match{Prefix, "/4"}, Redirect: &Redirect{Host: "new"}}, {Source: Name{"shop", "r"}, Path: Match{Prefix, "/5"}},
	}}, {Port: 443, TLS: true, Secrets: []Name{{"ns", "c"}}}}}
	result, c := translate(t, m, options)
	const a, b = "HTTP:shop:auth:9000:pp:/a", "HTTP:shop:auth:9000:pp:/b"
	for chain := range 2 {
		names, configs := filtersOf(t, c, chain)
		if diff := cmp.Diff([]string{"grpc_web", "grpc_stats", "ext_authz/" + a, "ext_authz/" + b, "router"}, names); diff != "" {
			t.Error(diff)
		}
		want := plain(`{decoderHeaderMutationRules: {disallowExpression: {regex: "^(:authority|host)$"}}, httpService: {
			serverUri: {uri: "http://auth:9000", cluster: "http:shop:auth:9000", timeout: 10s}, pathPrefix: /a,
			authorizationResponse: {allowedUpstreamHeaders: {patterns: [{safeRegex: {regex: ".*"}}]}}}}`)
		text, err := encode(configs[0])
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, plain(string(text))); diff != "" {
			t.Error(diff)
		}
	}
	off := switchedOff(t, c.Tables[plainTable].VirtualHosts)
	if diff := cmp.Diff(map[string]string{"/1": b, "/2": a, "/3": a + " " + b, "/4": a + " " + b, "/5 500": a + " " + b}, off); diff != "" {
		t.Error(diff)
	}
	cluster := c.Clusters["http:shop:auth:9000"]
	if cluster == nil || cluster.EdsClusterConfig.ServiceName != "shop/auth:9000" || len(c.Clusters) != 2 {
		t.Errorf("%v", c.Clusters)
	}
	if got := fmt.Sprint(result.Spec.BackendServices); got != "[{auth shop [9000]} {v1 shop [80]}]" {
		t.Error(got)
	}
}

// ENV-45: what can be said of the filter.
func TestExternalAuthOptions(t *testing.T) {
	server := to("auth", "9000")[0]
	secure := server
	secure.TLS = &UpstreamTLS{ServerName: "auth.example.com", Authority: Name{"shop", "ca"}}
	for name, test := range map[string]struct {
		auth                 ExternalAuth
		filter, cluster, has string
	}{
		"gRPC": {
			ExternalAuth{Server: server, GRPC: true}, "GRPC:shop:auth:9000", "grpc:shop:auth:9000",
			`grpcService: {envoyGrpc: {clusterName: "grpc:shop:auth:9000", authority: "auth:9000"}}, transportApiVersion: V3`,
		},
		"headers and a body": {
			ExternalAuth{Server: server, RequestHeaders: []string{"X-B", "X-A"}, ResponseHeaders: []string{"X-User"}, MaxBody: 8192},
			"HTTP:shop:auth:9000:fb:8192:arh:X-A,X-B:esh:X-User", "http:shop:auth:9000",
			`allowedHeaders: {patterns: [{exact: X-A, ignoreCase: true}, {exact: X-B, ignoreCase: true}]}, withRequestBody: {maxRequestBytes: 8192, allowPartialMessage: true},
			httpService: {serverUri: {uri: "http://auth:9000", cluster: "http:shop:auth:9000", timeout: 10s}, authorizationResponse: {allowedUpstreamHeaders: {patterns: [{exact: X-User, ignoreCase: true}]}}}`,
		},
		"TLS": {
			ExternalAuth{Server: secure}, "HTTP:shop:auth:9000", "http:shop:auth:9000:tls",
			`httpService: {serverUri: {uri: "https://auth:9000", cluster: "http:shop:auth:9000:tls", timeout: 10s}, authorizationResponse: {allowedUpstreamHeaders: {patterns: [{safeRegex: {regex: ".*"}}]}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, c := translate(t, Model{HTTP: []Listener{{Port: 80, Routes: []*Route{guarded("/", &test.auth)}}}}, options)
			names, configs := filtersOf(t, c, 0)
			if names[2] != "ext_authz/"+test.filter || c.Clusters[test.cluster] == nil || (c.Clusters[test.cluster].TransportSocket != nil) != (test.auth.Server.TLS != nil) {
				t.Errorf("%q, %v", names, c.Clusters)
			}
			text, err := encode(configs[0])
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(plain(`{decoderHeaderMutationRules: {disallowExpression: {regex: "^(:authority|host)$"}}, `+test.has+"}"), plain(string(text))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// ENV-45: nothing is served without its check: not without a server, nor with more filters than a namespace has, nor with a preflight of CORS,
// which is answered by Envoy alone.
func TestExternalAuthFailsClosed(t *testing.T) {
	none := guarded("/none", &ExternalAuth{})
	none.Mirrors = []Mirror{{Backend: to("v2", "80")[0]}}
	cors := guarded("/cors", askAt("/0"))
	cors.CORS = &CORS{Origins: []Match{{Kind: Any}}}
	routes := []*Route{none, cors}
	for i := range MostAuths + 1 {
		routes = append(routes, guarded(fmt.Sprint("/", i), askAt(fmt.Sprint("/", i))))
	}
	other := guarded("/other", askAt("/other"))
	other.Source.Namespace = "infra"
	result, c := translate(t, Model{HTTP: []Listener{{Port: 80, Routes: append(routes, other)}}}, options)
	if len(result.Problems) != 1 || !strings.Contains(result.Problems[0].Message, "more than 8 different filters") {
		t.Errorf("%v", result.Problems)
	}
	names, _ := filtersOf(t, c, 0)
	if len(names) != MostAuths+1+3 {
		t.Errorf("%q", names)
	}
	for path, off := range switchedOff(t, c.Tables[plainTable].VirtualHosts) {
		all := len(strings.Fields(off)) == MostAuths+1
		switch path {
		case "/none 500", fmt.Sprintf("/%d 500", MostAuths), "/cors 204":
			if !all {
				t.Errorf("%s has %s", path, off)
			}
		default:
			if all || strings.Contains(path, " ") {
				t.Errorf("%s passes none: %s", path, off)
			}
		}
	}
	if c.Clusters["shop:v2:80"] != nil {
		t.Error("a route without its server has a mirror")
	}
}

// ENV-45: a path that reads like other parts of the name makes none that another filter has; names of usual paths are those of the original.
func TestNamesOfExternalAuth(t *testing.T) {
	server := to("auth", "9000")[0]
	all := []*ExternalAuth{
		{Server: server, Path: "/check", RequestHeaders: []string{"authorization"}},
		{Server: server, Path: "/check:arh:authorization"},
		{Server: server, Path: "/check", MaxBody: 9, RequestHeaders: []string{"a", "b"}, ResponseHeaders: []string{"c"}},
		{Server: server, Path: "/check:fb:9", RequestHeaders: []string{"a", "b"}, ResponseHeaders: []string{"c"}},
		{Server: server, Path: "/check:fb:9:arh:a,b", ResponseHeaders: []string{"c"}},
		{Server: server, Path: "/check:fb:9:arh:a,b:esh:c"},
		{Server: server, Path: "/check,b"},
	}
	var routes []*Route
	for i, auth := range all {
		r := guarded(fmt.Sprint("/", i), auth)
		r.Source.Namespace = fmt.Sprint("n", i)
		routes = append(routes, r)
	}
	_, c := translate(t, Model{HTTP: []Listener{{Port: 80, Routes: routes}}}, options)
	names, configs := filtersOf(t, c, 0)
	prefixes := map[string]bool{}
	for _, config := range configs {
		prefixes[config.GetHttpService().PathPrefix] = true
	}
	if len(configs) != len(all) || len(prefixes) != len(all)-1 {
		t.Errorf("%q: %v", names, prefixes)
	}
	for i, want := range map[int]string{0: ":pp:/check:arh:authorization", 2: ":pp:/check:fb:9:arh:a,b:esh:c", 6: ":pp:/check,b"} {
		if got := all[i].Filter(); got != "envoy.filters.http.ext_authz/HTTP:shop:auth:9000"+want {
			t.Error(got)
		}
	}
}

// ENV-45: each route names the filters of others, so that a name is not as long as what a filter has.
func TestLongNamesOfExternalAuth(t *testing.T) {
	server := to("auth", "9000")[0]
	const short = "envoy.filters.http.ext_authz/HTTP:shop:auth:9000:pp:"
	names := map[string]bool{}
	for _, auth := range []ExternalAuth{
		{Server: server, Path: "/" + strings.Repeat("a", 1000)}, {Server: server, Path: "/" + strings.Repeat("a", 1001)}, {Server: server, Path: "/" + strings.Repeat("a:", 500)},
		{Server: server, Path: "/", RequestHeaders: []string{strings.Repeat("a", 256)}}, {Server: server, Path: "/", ResponseHeaders: []string{strings.Repeat("a", 256)}},
		{Server: server, Path: "/", RequestHeaders: []string{strings.Repeat("a", 256)}, MaxBody: 1}, {Server: server, RequestHeaders: []string{strings.Repeat("a", 256)}},
	} {
		name := auth.Filter()
		if names[name] || len(name) > 240 || !strings.HasPrefix(name, "envoy.filters.http.ext_authz/HTTP:shop:auth:9000:sha256:") {
			t.Error(name)
		}
		names[name] = true
	}
	kept := ExternalAuth{Server: server, Path: "/" + strings.Repeat("a", mostOfName-len(short)-1)}
	if name := kept.Filter(); name != short+kept.Path || len(name) != mostOfName {
		t.Error(name)
	}
}

// ENV-45: a filter that there is no space for closes the routes of the namespace that has brought it. Another one with the same filter may have brought it as well.
func TestRefusedFilters(t *testing.T) {
	first, second := guarded("/1", askAt("/a")), guarded("/2", askAt("/b"))
	other := guarded("/3", askAt("/b"))
	other.Source.Namespace = "infra"
	m := Model{HTTP: []Listener{{Port: 80, Routes: []*Route{first, second}}}, RefusedAuths: map[Name]bool{{"shop", second.Auth.Filter()}: true}}
	result, c := translate(t, m, options)
	const a, b = "HTTP:shop:auth:9000:pp:/a", "HTTP:shop:auth:9000:pp:/b"
	if diff := cmp.Diff(map[string]string{"/1": "", "/2 500": a}, switchedOff(t, c.Tables[plainTable].VirtualHosts)); diff != "" || len(result.Problems) != 1 || result.Problems[0].Source != second.Source {
		t.Errorf("%v %s", result.Problems, diff)
	}
	m.HTTP[0].Routes = append(m.HTTP[0].Routes, other)
	if _, c = translate(t, m, options); !cmp.Equal(map[string]string{"/1": b, "/2": a, "/3": a}, switchedOff(t, c.Tables[plainTable].VirtualHosts)) {
		t.Error(switchedOff(t, c.Tables[plainTable].VirtualHosts))
	}
}

// A filter whose server gets TLS is another one, with the same name.
func TestExternalAuthGetsTLS(t *testing.T) {
	kept, auth := new(Translator), askAt("/a")
	secure := *auth
	secure.Server.TLS = &UpstreamTLS{ServerName: "auth.example.com", Authority: Name{"shop", "ca"}}
	for _, of := range []*ExternalAuth{auth, &secure} {
		m := Model{HTTP: []Listener{{Port: 80, Routes: []*Route{guarded("/", of)}}}}
		got, err := kept.Translate(m, options)
		if err != nil {
			t.Fatal(err)
		}
		if want, _ := translate(t, m, options); !cmp.Equal(want.Spec, got.Spec) {
			t.Error(cmp.Diff(want.Spec, got.Spec))
		}
	}
}

// ENV-31: what Envoy would refuse with all routes of the listener.
func TestExternalAuthIsChecked(t *testing.T) {
	for name, auth := range map[string]*ExternalAuth{
		"a path without a slash": {Server: to("auth", "9000")[0], Path: "check"},
		"a header with a space":  {Server: to("auth", "9000")[0], RequestHeaders: []string{"a b"}},
		"no name of a header":    {Server: to("auth", "9000")[0], ResponseHeaders: []string{""}},
		"a control character":    {Server: to("auth", "9000")[0], Path: "/a\nb"},
	} {
		if guarded("/", auth).Check(0) == nil {
			t.Errorf("%s is not refused", name)
		}
	}
	if err := guarded("/", askAt("/a")).Check(0); err != nil {
		t.Error(err)
	}
}

// A change of the filters is one of each listener and each route.
func TestExternalAuthOfChangedModels(t *testing.T) {
	kept := new(Translator)
	first, second := guarded("/1", askAt("/a")), guarded("/2", nil)
	for _, routes := range [][]*Route{{first, second}, {second}, {first, second, guarded("/3", askAt("/c"))}} {
		m := Model{HTTP: []Listener{{Port: 80, Routes: routes}}}
		got, err := kept.Translate(m, options)
		if err != nil {
			t.Fatal(err)
		}
		if want, _ := translate(t, m, options); !cmp.Equal(want.Spec, got.Spec) {
			t.Error(cmp.Diff(want.Spec, got.Spec))
		}
	}
}
