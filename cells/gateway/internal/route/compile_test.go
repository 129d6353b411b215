// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package route

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// objects is what lookups are about: Services with port 80, and how they are spoken to.
type objects struct {
	services map[slim.Key]bool
	tls      map[slim.Key]Answer
}

func (c objects) lookup(q Query) Answer {
	switch q.About {
	case AboutPort:
		return Answer{Exists: c.services[q.Key], OK: c.services[q.Key] && q.Port == 80}
	case AboutTLS:
		return c.tls[q.Key]
	}
	return Answer{NoCRD: true}
}

func parse[T any](t testing.TB, text string) *T {
	t.Helper()
	obj := new(T)
	if err := yaml.Unmarshal([]byte(text), obj); err != nil {
		t.Fatal(err)
	}
	return obj
}

// GW-23 to GW-25: rules, and those that are left out.
func TestCompile(t *testing.T) {
	c := objects{services: map[slim.Key]bool{{Namespace: "shop", Name: "v1"}: true}}
	r := parse[HTTP](t, `
metadata: {name: r, namespace: shop}
spec:
  rules:
  - matches: [{path: {type: RegularExpression, value: "/bad["}}]
  - filters: [{type: ExtensionRef, extensionRef: {group: x, kind: Y, name: z}}]
  - matches: [{path: {type: Exact, value: /a}, method: GET, headers: [{name: X-A, value: "1"}, {name: x-a, value: "2"}]}]
    timeouts: {request: 10s, backendRequest: soon}
    backendRefs: [{name: v1, port: 80, weight: 0}, {name: none, port: 80}, {name: v1, port: 81}]
  - filters: [{type: RequestRedirect, requestRedirect: {hostname: n.example.com}}, {type: RequestMirror, requestMirror: {backendRef: {name: v1, port: 80}, percent: 20}}]`)
	got := Compile(r.Route(), c.lookup)
	if len(got.Routes) != 3 || len(got.Dropped) != 2 || got.IsDropped() || !strings.HasPrefix(got.Dropped[1], "Dropped Rule 1: the filter ExtensionRef") {
		t.Fatalf("%v %q", got.Routes, got.Dropped)
	}
	closed, a, b := got.Routes[0], got.Routes[1], got.Routes[2]
	if closed.Path.Value != "/" || len(closed.Backends) != 0 || closed.Redirect != nil {
		t.Errorf("a rule that is left out is answered by %+v", closed)
	}
	if a.Lost != 2 {
		t.Errorf("backends that are not valid have the weight %d", a.Lost)
	}
	if a.Method != "GET" || len(a.Headers) != 1 || a.Headers[0].Value != "1" || *a.RequestTimeout != 10*time.Second || a.BackendTimeout != nil || len(a.Backends) != 1 || *a.Backends[0].Weight != 0 {
		t.Errorf("%+v", a)
	}
	if b.Path.Value != "/" || b.Redirect.Host != "n.example.com" || b.Redirect.Code != 302 || len(b.Mirrors) != 1 || b.Mirrors[0].Numerator != 20 {
		t.Errorf("%+v", b)
	}
	for text, want := range map[string]string{
		"{service: a, method: b}": "/a/b", "{service: a}": "/a/", "{method: b}": "/.+/b", "{type: RegularExpression, service: a|b, method: c.}": "/(?:a|b)/c.",
	} {
		if got := grpcPath(parse[gatewayv1.GRPCMethodMatch](t, text)).Value; got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// GW-23: all rules for connections match the same: those that have none are named.
func TestFurtherRulesOfConnections(t *testing.T) {
	c := objects{services: map[slim.Key]bool{{Namespace: "shop", Name: "v1"}: true}}
	const text = "{metadata: {name: r, namespace: shop}, spec: {rules: [{backendRefs: [{name: v1, port: 80}]}, {backendRefs: [{name: v1, port: 80}]}]}}"
	for _, r := range []*Route{parse[TLS](t, text).Route(), parse[TCP](t, text).Route(), parse[UDP](t, text).Route()} {
		got := Compile(r, c.lookup)
		if got.IsDropped() || len(got.Dropped) != 1 || !strings.HasPrefix(got.Dropped[0], "Dropped Rule 1: ") || got.PartiallyInvalid() == nil {
			t.Errorf("%s: %q", r.Kind, got.Dropped)
		}
	}
	if got := Compile(parse[TLS](t, strings.Replace(text, "}, {backendRefs: [{name: v1, port: 80}]}]", "}]", 1)).Route(), c.lookup); len(got.Dropped) > 0 {
		t.Errorf("one rule: %q", got.Dropped)
	}
}

// ENV-40, ENV-42: a rule is left out if a match of it becomes too large, however it does, and so is one that removes a header whose name is too long. What it matches is closed.
func TestCompileTooLarge(t *testing.T) {
	c := objects{services: map[slim.Key]bool{{Namespace: "shop", Name: "v1"}: true}}
	const modifier, tooMuch = "{type: RequestHeaderModifier, requestHeaderModifier: {remove: %s}}", "what is written for one match of it has "
	names := func(n, length int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(strings.Repeat("x", length)+", ", n), ", ") + "]"
	}
	origins := "[" + strings.TrimSuffix(strings.Repeat("https://"+strings.Repeat("o", 245)+", ", 900), ", ") + "]"
	for name, test := range map[string]struct{ filters, retry, why string }{
		"what fits":       {filters: fmt.Sprintf(modifier, names(15, 16_000))},
		"removed headers": {filters: fmt.Sprintf(modifier, names(17, 16_000)), why: tooMuch},
		"a long name":     {filters: fmt.Sprintf(modifier, names(1, 60_000)), why: "the name "},
		"CORS":            {filters: fmt.Sprintf("{type: CORS, cors: {allowOrigins: %s}}", origins), why: tooMuch},
		"codes":           {retry: fmt.Sprintf("{codes: [%s]}", strings.TrimSuffix(strings.Repeat("503, ", 66_000), ", ")), why: tooMuch},
	} {
		if test.retry == "" {
			test.retry = "{}"
		}
		got := Compile(parse[HTTP](t, fmt.Sprintf(
			"{metadata: {name: r, namespace: shop}, spec: {rules: [{matches: [{path: {value: /a}}, {path: {value: /b}}], filters: [%s], retry: %s, backendRefs: [{name: v1, port: 80}]}]}}", test.filters, test.retry)).Route(), c.lookup)
		if dropped := len(got.Dropped) > 0; dropped != (test.why != "") || dropped && !strings.HasPrefix(got.Dropped[0], "Dropped Rule 0: "+test.why) || len(got.Routes) != 2 {
			t.Errorf("%s: %.200q, %d routes", name, got.Dropped, len(got.Routes))
		}
		if closed := len(got.Routes) > 0 && len(got.Routes[0].Backends) == 0; closed != (test.why != "") {
			t.Errorf("%s: what the rule matches is served: %t", name, !closed)
		}
	}
}

// GW-E33: a rule with an expression that is too large is left out, wherever it is; the others stay.
func TestCompileLarge(t *testing.T) {
	long := strings.Repeat(".{1000}", 500)
	r := parse[HTTP](t, strings.ReplaceAll(`
metadata: {name: r, namespace: shop}
spec:
  rules:
  - matches: [{path: {type: RegularExpression, value: "LONG"}}]
  - matches: [{headers: [{type: RegularExpression, name: X-A, value: "LONG"}]}]
  - matches: [{queryParams: [{type: RegularExpression, name: q, value: "LONG"}]}]
  - matches: [{path: {type: RegularExpression, value: "/.{1000}"}}]`, "LONG", long))
	got := Compile(r.Route(), objects{}.lookup)
	if len(got.Routes) != 1 || len(got.Dropped) != 3 || !strings.Contains(got.Dropped[2], "Dropped Rule 2: regular expression") || !strings.Contains(got.Dropped[2], "is too large") {
		t.Errorf("%v %q", got.Routes, got.Dropped)
	}
}

// GW-23, ENV-23; number 3.1 of the contract's tenants.md: a rule with an expression that is larger than Envoy takes is left out, wherever it is, also one that is written for a path.
func TestCompileBeyondEnvoysLimit(t *testing.T) {
	r := parse[HTTP](t, `
metadata: {name: r, namespace: shop}
spec:
  rules:
  - matches: [{path: {type: RegularExpression, value: "/[a-z]{200}"}}]
  - matches: [{headers: [{type: RegularExpression, name: X-A, value: "[a-z]{200}"}]}]
  - matches: [{queryParams: [{type: RegularExpression, name: q, value: "[a-z]{200}"}]}]
  - matches: [{path: {type: RegularExpression, value: "/v[0-9]+/(users|orders)/[^/]+"}}]
  - matches: [{path: {value: /old}}]
    filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /}}}]`)
	for most, dropped := range map[int64]int{100: 3, 20: 4, 300: 0, 0: 0} {
		got := Compile(r.Route(), func(q Query) Answer {
			if q.About == AboutPrograms {
				return Answer{Number: most}
			}
			return objects{}.lookup(q)
		})
		if len(got.Dropped) != dropped || dropped > 0 && !strings.Contains(got.Dropped[0], "--envoy-max-regex-program-size") {
			t.Errorf("with %d instructions: %q", most, got.Dropped)
		}
	}
}

// GW-31: a filter for CORS as the model has it; number 44 of the contract's envoy-config.md.
func TestCORS(t *testing.T) {
	got := corsOf(parse[gatewayv1.HTTPCORSFilter](t, `
allowOrigins: ["https://Foo.com:443", "http://foo.com:443", "https://*.bar.com", "http://*:80"]
allowMethods: [GET, PUT]
allowHeaders: [X-A]
exposeHeaders: [X-B]
allowCredentials: true
maxAge: 60`))
	want := &envoy.CORS{
		Origins: []envoy.Match{
			{Kind: envoy.Exact, Value: "https://foo.com"}, {Kind: envoy.Exact, Value: "http://foo.com:443"},
			{Kind: envoy.Regex, Value: `https://[^:/]+\.bar\.com`}, {Kind: envoy.Regex, Value: "http://[^:/]+"},
		},
		Credentials: true, Methods: []string{"GET", "PUT"}, RequestHeaders: []string{"X-A"}, ResponseHeaders: []string{"X-B"}, MaxAge: 60,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	got = corsOf(parse[gatewayv1.HTTPCORSFilter](t, `{allowOrigins: ["https://*.example.com"], allowCredentials: true, maxAge: 10}`))
	if !got.Credentials || got.MaxAge != 10 || !cmp.Equal(got.Origins, []envoy.Match{{Kind: envoy.Regex, Value: `https://[^:/]+\.example\.com`}}) {
		t.Errorf("44: %+v", got)
	}
	if got := corsOf(parse[gatewayv1.HTTPCORSFilter](t, `allowOrigins: ["*"]`)); got.MaxAge != 5 || got.Credentials || got.Origins[0].Kind != envoy.Any {
		t.Errorf("%+v", got)
	}
}

// GW-37: a backend is spoken to with TLS, or not at all.
func TestBackendsUnderPolicies(t *testing.T) {
	key := func(name string) slim.Key { return slim.Key{Namespace: "infra", Name: name} }
	tls := &envoy.UpstreamTLS{ServerName: "a.example.com", Authority: envoy.Name{Namespace: "infra", Name: "ca"}}
	c := objects{
		services: map[slim.Key]bool{key("plain"): true, key("secure"): true, key("broken"): true},
		tls:      map[slim.Key]Answer{key("secure"): {Exists: true, OK: true, TLS: tls}, key("broken"): {Exists: true}},
	}
	const refs = `[{name: plain, port: 80}, {name: secure, port: 80}, {name: broken, port: 80}]`
	r := parse[HTTP](t, `{metadata: {name: r, namespace: infra}, spec: {rules: [{backendRefs: `+refs+`, filters: [
		{type: RequestMirror, requestMirror: {backendRef: {name: secure, port: 80}}}, {type: RequestMirror, requestMirror: {backendRef: {name: broken, port: 80}}}]}]}}`)
	got := Compile(r.Route(), c.lookup).Routes[0]
	if b := got.Backends; len(b) != 2 || b[0].TLS != nil || b[1].TLS != tls || len(got.Mirrors) != 1 || got.Mirrors[0].TLS != tls {
		t.Errorf("%+v", got)
	}
}

// A compilation is used again as long as all that it has asked for has the same answers; nothing is asked twice.
func TestAnswers(t *testing.T) {
	key := slim.Key{Namespace: "shop", Name: "v1"}
	c := objects{services: map[slim.Key]bool{key: true}, tls: map[slim.Key]Answer{key: {Exists: true, OK: true, TLS: &envoy.UpstreamTLS{ServerName: "a.example.com"}}}}
	r := parse[HTTP](t, "{metadata: {name: r, namespace: shop}, spec: {rules: [{backendRefs: [{name: v1, port: 80}, {name: v1, port: 80}]}]}}").Route()
	asked, answers := 0, Answers{}
	counted := Lookup(func(q Query) Answer { asked++; return c.lookup(q) })
	Compile(r, counted.Record(answers))
	if asked != 2 || len(answers) != 2 { // the port, and its policy
		t.Fatalf("%d were asked: %v", asked, answers)
	}
	c.services[slim.Key{Namespace: "shop", Name: "other"}] = true
	c.tls[key] = Answer{Exists: true, OK: true, TLS: &envoy.UpstreamTLS{ServerName: "a.example.com"}}
	if !answers.IsFresh(c.lookup) {
		t.Error("it depends on what it has not asked for")
	}
	c.tls[key] = Answer{Exists: true, OK: true, TLS: &envoy.UpstreamTLS{ServerName: "b.example.com"}}
	if answers.IsFresh(c.lookup) {
		t.Error("it does not depend on the policy of a backend")
	}
	without := Answers{}
	Compile(r, Lookup(c.lookup).WithoutPolicies().Record(without))
	if delete(c.tls, key); !without.IsFresh(Lookup(c.lookup).WithoutPolicies()) {
		t.Error("it depends on a policy without policies")
	}
	if delete(c.services, key); without.IsFresh(Lookup(c.lookup).WithoutPolicies()) {
		t.Error("it does not depend on the Service")
	}
}

// A ReferenceGrant allows what it names, of the group of the kind.
func TestGrants(t *testing.T) {
	q := Query{FromKind: KindHTTP, FromNamespace: "shop", ToKind: KindService, Key: slim.Key{Namespace: "infra", Name: "s"}}
	imported := q
	imported.ToKind = KindImport
	const from = "from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: shop}]"
	for text, want := range map[string][2]bool{
		from + `, to: [{group: "", kind: Service}]`:                                                                      {true, false},
		from + `, to: [{group: "", kind: Service, name: s}]`:                                                             {true, false},
		from + `, to: [{group: "", kind: Service, name: other}]`:                                                         {false, false},
		from + `, to: [{group: "", kind: ServiceImport}]`:                                                                {false, false},
		from + `, to: [{group: multicluster.x-k8s.io, kind: ServiceImport}]`:                                             {false, true},
		`from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: else}], to: [{group: "", kind: Service}]`: {false, false},
		`from: [{group: gateway.networking.k8s.io, kind: GRPCRoute, namespace: shop}], to: [{group: "", kind: Service}]`: {false, false},
		`from: [{group: example.com, kind: HTTPRoute, namespace: shop}], to: [{group: "", kind: Service}]`:               {false, false},
	} {
		g := *parse[gatewayv1.ReferenceGrantSpec](t, "{"+text+"}")
		if got := [2]bool{q.IsAllowedBy(g), imported.IsAllowedBy(g)}; got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}
