// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/domain/envoy/envoytest"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// request asks a configuration with one listener as Envoy answers.
func request(c *envoytest.Config, tls bool, host, path string) envoytest.Answer {
	return c.Answer(listenerName, tls, host, path)
}

// ingresses makes what Ingresses have in models.
type tenant struct {
	namespace string
	created   time.Time
}

var (
	older   = tenant{"aa", time.Unix(1000, 0)}
	younger = tenant{"bb", time.Unix(2000, 0)}
)

func (o tenant) claim() Claim { return Claim{Name{o.namespace, "web"}, o.created} }

func (o tenant) route(kind MatchKind, path string) *Route {
	r := route(kind, path, []Backend{{Name: Name{o.namespace, "s"}, Port: "80"}})
	r.Source, r.NoBackend = o.claim().Of, 503
	return r
}

func (o tenant) fallback() *Route {
	r := o.route(Any, "")
	r.Fallback = true
	return r
}

func (o tenant) http(host string, routes ...*Route) Model {
	return Model{HTTP: []Listener{{Claim: o.claim(), Hostname: host, Port: 80, Routes: routes}}}
}

func (o tenant) https(host string, force bool, routes ...*Route) Model {
	m := o.http(host, routes...)
	m.HTTP = append(m.HTTP, Listener{
		Claim: o.claim(), Hostname: host, Port: 443, TLS: true, ForceHTTPS: force, Secrets: []Name{{o.namespace, "tls"}}, Routes: routes,
	})
	return m
}

// tls is TLS of a host that a rule without host is for.
func (o tenant) tls(host string, force bool, routes ...*Route) Model {
	m := o.https(host, force, routes...)
	m.HTTP = m.HTTP[1:]
	return m
}

func (o tenant) passthrough(host, service string) Model {
	p := Passthrough{Source: o.claim().Of, Created: o.created, Hostnames: []string{host}, Port: 443}
	if service != "" {
		p.Backends = []Backend{{Name: Name{o.namespace, service}, Port: "443"}}
	}
	return Model{Passthrough: []Passthrough{p}}
}

func owners() Options {
	o := options
	o.Owners = true
	return o
}

// served is the configuration of a model, nil if there is none.
func served(t *testing.T, m Model) (*envoytest.Config, []Problem) {
	t.Helper()
	result, err := new(Translator).Translate(m, owners())
	if err != nil {
		t.Fatal(err)
	}
	if result.Empty {
		return nil, result.Problems
	}
	c, err := envoytest.Verify(result.Spec)
	if err != nil {
		t.Fatal(err)
	}
	return c, result.Problems
}

// ENV-33; numbers 1.1 to 1.5, and 2.3, of the contract's tenants.md: each pair is asked in both orders of the objects. What is not said
// to change is answered as if the younger object was not there; its author is told, with the name of the older one.
func TestOwners(t *testing.T) {
	type ask struct {
		tls        bool
		host, path string
		want       string // a part of the answer; "" for what it was before
	}
	const shop = "shop.test"
	own := older.http(shop, older.route(Prefix, "/"))
	for name, test := range map[string]struct {
		older, younger Model
		asks           []ask
		told           bool
	}{
		"1.1 one path":         {own, younger.http(shop, younger.route(Prefix, "/")), []ask{{false, shop, "/x", ""}}, true},
		"1.2 an expression":    {own, younger.http(shop, younger.route(Regex, "/.*")), []ask{{false, shop, "/x", ""}}, true},
		"1.2 beside a path":    {older.http(shop, older.route(Prefix, "/a")), younger.http(shop, younger.route(Regex, "/.*")), []ask{{false, shop, "/a/b", ""}, {false, shop, "/b", "bb:s"}}, false},
		"1.3 TLS by all hosts": {own, younger.https(shop, true, younger.route(Any, "")), []ask{{false, shop, "/x", ""}, {true, shop, "/x", "closed"}}, true},
		"1.4 passed through":   {older.passthrough("pt.test", "s"), younger.https("pt.test", true, younger.route(Prefix, "/")), []ask{{true, "pt.test", "/", ""}, {false, "pt.test", "/", ""}}, true},
		"1.5 a certificate":    {own, younger.https(shop, false, younger.route(Prefix, "/b")), []ask{{true, shop, "/b", "closed"}, {false, shop, "/b", "bb:s"}}, true},
		"2.3 two certificates": {older.https(shop, false, older.route(Prefix, "/")), younger.https(shop, false, younger.route(Prefix, "/b")), []ask{{true, shop, "/x", ""}, {true, shop, "/b", "aa-tls"}}, true},
		"passed through twice": {older.passthrough("pt.test", "s"), younger.passthrough("pt.test", "s"), []ask{{true, "pt.test", "/", ""}}, true},
		"terminated, passed":   {older.https(shop, false, older.route(Prefix, "/")), younger.passthrough(shop, "s"), []ask{{true, shop, "/", ""}}, true},
		"a longer path":        {own, younger.http(shop, younger.route(Prefix, "/b"), younger.route(Exact, "/c")), []ask{{false, shop, "/b/x", "bb:s"}, {false, shop, "/c", "bb:s"}, {false, shop, "/c/x", ""}}, false},
		"the exact path":       {own, younger.http(shop, younger.route(Exact, "/")), []ask{{false, shop, "/", ""}}, true},
		"after an expression":  {older.http(shop, older.route(Regex, "/[a-z]+")), younger.http(shop, younger.route(Exact, "/a"), younger.route(Prefix, "/b")), []ask{{false, shop, "/a", ""}, {false, shop, "/b", ""}, {false, shop, "/b/c", "bb:s"}}, false},
		"a default backend":    {older.http(shop, older.route(Prefix, "/a")), younger.http(shop, younger.route(Prefix, "/b"), younger.fallback()), []ask{{false, shop, "/c", ""}, {false, shop, "/b", "bb:s"}}, true},
		"of all hosts":         {older.http("", older.fallback()), younger.http("", younger.fallback()), []ask{{false, "x.test", "/c", ""}}, true},
		"the default's /":      {older.http(shop, older.fallback()), younger.http(shop, younger.route(Prefix, "/"), younger.route(Prefix, "/b")), []ask{{false, shop, "/c", ""}, {false, shop, "/b", "bb:s"}}, true},
		"a host of a wildcard": {older.https("*.test", false, older.route(Prefix, "/")), younger.http(shop, younger.route(Prefix, "/")), []ask{{false, shop, "/", "bb:s"}, {true, shop, "/", ""}}, false},
		"a younger wildcard":   {own, younger.https("*.test", false, younger.route(Prefix, "/")), []ask{{false, shop, "/", ""}, {true, shop, "/", "closed"}, {true, "x.test", "/", "bb:s"}}, false},
		"no backend":           {older.passthrough("pt.test", ""), younger.passthrough("*.test", "s"), []ask{{true, "pt.test", "/", "closed"}}, false},
		"TLS alone":            {join([]Model{older.http("", older.route(Prefix, "/")), older.tls(shop, false, older.route(Prefix, "/"))}), younger.http(shop, younger.route(Prefix, "/")), []ask{{false, shop, "/x", ""}, {true, shop, "/x", ""}}, true},
		"TLS alone, redirects": {join([]Model{older.http("", older.route(Prefix, "/")), older.tls(shop, false, older.route(Prefix, "/"))}), younger.https(shop, true, younger.route(Prefix, "/b")), []ask{{false, shop, "/b", ""}}, true},
		"redirects of both":    {join([]Model{older.http("", older.route(Prefix, "/x")), older.tls(shop, true, older.route(Prefix, "/x"))}), younger.https(shop, true, younger.route(Prefix, "/b")), []ask{{false, shop, "/b", "redirect"}, {true, shop, "/b", "bb:s"}, {false, shop, "/x", ""}}, true},
		"redirects of one":     {join([]Model{older.http("", older.route(Prefix, "/x")), older.tls(shop, true, older.route(Prefix, "/x"))}), younger.http(shop, younger.route(Prefix, "/b")), []ask{{false, shop, "/b", "bb:s"}, {false, shop, "/x", "redirect"}, {true, shop, "/x", ""}}, false},
		"no plain host":        {older.passthrough("pt.test", "s"), younger.http("", younger.route(Prefix, "/")), []ask{{false, "pt.test", "/", "404"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			alone, _ := served(t, test.older)
			for _, m := range []Model{join([]Model{test.older, test.younger}), join([]Model{test.younger, test.older})} {
				both, problems := served(t, m)
				for _, a := range test.asks {
					got, want := request(both, a.tls, a.host, a.path).String(), a.want
					is := strings.Contains(got, want)
					if want == "" {
						want = request(alone, a.tls, a.host, a.path).String()
						is = got == want
					}
					if !is && !(want == "closed" && got == "no host") {
						t.Errorf("TLS %t %s%s: %s, want %s", a.tls, a.host, a.path, got, want)
					}
				}
				told := slices.ContainsFunc(problems, func(p Problem) bool { return p.Source == younger.claim().Of && p.Owner == older.claim().Of })
				if told != test.told {
					t.Errorf("told: %t %v", told, problems)
				}
			}
		})
	}
}

// ENV-33: the hosts of an object that has no place in the configuration are served to none.
func TestAbsentOwner(t *testing.T) {
	m := older.http("shop.test")
	m.HTTP[0].Absent = true
	both, problems := served(t, join([]Model{younger.https("shop.test", true, younger.route(Prefix, "/")), m, younger.http("x.test", younger.route(Prefix, "/"))}))
	for _, tls := range []bool{false, true} {
		if got := request(both, tls, "shop.test", "/").String(); got != "closed" && got != "no host" {
			t.Errorf("TLS %t: %s", tls, got)
		}
	}
	if len(problems) == 0 {
		t.Error("the younger one is not told")
	}
}

// ENV-33: the hosts that an object names and has nothing for are its own: its wider names answer as before, and nothing of a younger one.
func TestClaimedHosts(t *testing.T) {
	claimed := older.http("shop.test")
	claimed.HTTP[0].Claimed = true
	mine := join([]Model{claimed, older.http("", older.route(Prefix, "/"))})
	alone, _ := served(t, mine)
	both, problems := served(t, join([]Model{younger.https("shop.test", true, younger.route(Prefix, "/")), mine, younger.http("x.test", younger.route(Prefix, "/"))}))
	for _, host := range []string{"shop.test", "other.test"} {
		if got, want := request(both, false, host, "/").String(), request(alone, false, host, "/").String(); got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
	if got := request(both, true, "shop.test", "/").String(); got != "closed" {
		t.Errorf("TLS: %s", got)
	}
	if len(problems) == 0 {
		t.Error("the younger one is not told")
	}
}

// tenantModel is what random Ingresses of a namespace have.
func (r random) tenantModel(of tenant) Model {
	var parts []Model
	for range 1 + r.IntN(3) {
		host := pick(r, "", "a.test", "b.test", "a.b.test", "*.test", "*.b.test")
		var routes []*Route
		for range 1 + r.IntN(3) {
			routes = append(routes, of.route(pick(r, Exact, Prefix, Prefix, Regex), pick(r, "/", "/a", "/a/b", "/b", "/a/b/c")))
			if last := routes[len(routes)-1]; last.Path.Kind == Regex {
				last.Path.Value = pick(r, "/.*", "/a.*", "/[a-z]", "/b/c")
			}
		}
		if r.IntN(4) == 0 {
			routes = append(routes, of.fallback())
		}
		switch r.IntN(6) {
		case 5:
			if host == "" {
				host = "c.test"
			}
			claimed := of.http(host)
			claimed.HTTP[0].Claimed = true
			parts = append(parts, claimed)
		case 0, 1:
			parts = append(parts, of.http(host, routes...))
		case 2, 3:
			parts = append(parts, of.https(host, r.IntN(2) == 0, routes...))
		default:
			if host == "" {
				host = "c.test"
			}
			parts = append(parts, of.passthrough(host, pick(r, "", "s", "s")))
		}
	}
	return join(parts)
}

// nearest is the name that a model has for a host, by its distance: 0 for the host itself.
func nearest(m Model, host string) int {
	named := map[string]bool{}
	for _, l := range m.HTTP {
		named[orAll(l.Hostname)] = true
	}
	for _, p := range m.Passthrough {
		named[p.Hostnames[0]] = true
	}
	names := envoytest.NamesFor(host)
	return slices.IndexFunc(append(names, ""), func(name string) bool { return named[name] || name == "" })
}

// ENV-33, for random Ingresses of two namespaces: what the younger ones add changes nothing of what the older ones' requests and
// connections are, but for paths and hosts that Kubernetes' rule puts first.
func TestYoungerChangesNothing(t *testing.T) {
	n := 3_000
	switch {
	case seedtest.Soak():
		n = 100_000
	case testing.Short() || seedtest.RaceEnabled:
		n = 300
	}
	r := random{rand.New(rand.NewPCG(seedtest.Seed(t), 1))}
	for i := range n {
		a, b := r.tenantModel(older), r.tenantModel(younger)
		alone, _ := served(t, a)
		both, problems := served(t, join([]Model{b, a}))
		for _, host := range []string{"a.test", "b.test", "a.b.test", "c.b.test", "c.test", "other.example"} {
			if nearest(b, host) < nearest(a, host) {
				continue // it names the host better
			}
			if nearest(a, host) == len(envoytest.NamesFor(host)) {
				continue // neither names it
			}
			for _, path := range []string{"/", "/a", "/a/b", "/a/b/c", "/a/x", "/b", "/b/c", "/z"} {
				for _, tls := range []bool{false, true} {
					was, is := request(alone, tls, host, path), request(both, tls, host, path)
					if nearest(b, host) < was.At && (is.To == "404" || is.To == "closed") {
						continue // its own wider name would have answered, and the younger one's is nearer
					}
					if !mayBecome(was, is) {
						t.Fatalf("%d: TLS %t %s%s: %s (%s), was %s (%s)\nolder %+v\nyounger %+v\n%v", i, tls, host, path, is, is.Path, was, was.Path, a, b, problems)
					}
				}
			}
		}
	}
}

// mayBecome reports whether a younger object of another namespace may make one answer of another one.
func mayBecome(was, is envoytest.Answer) bool {
	was.At, is.At = 0, 0
	byYounger := strings.Contains(is.To, "bb:") || is.To == "redirect"
	switch {
	case was == is:
		return true
	case was.Secrets != is.Secrets:
		return false
	case was.To == "closed" || was.To == "no host":
		return is.To == "closed" || is.To == "no host" || is.To == "404"
	case was.To == "404" && byYounger:
		return true
	}
	return byYounger && was.Kind == "prefix" && (is.Kind == "prefix" || is.Kind == "exact") && len(is.Path) > len(was.Path)
}
