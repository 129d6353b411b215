// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/domain/envoy/envoytest"
)

// request asks a configuration with one listener as Envoy answers.
func request(c *envoytest.Config, tls bool, host, path string) envoytest.Answer {
	return c.Answer(listenerName, tls, host, path)
}

// tenant makes what an Ingress has in models.
type tenant struct {
	namespace string
	created   time.Time
	suffix    string // of all names, "" unless it has several
}

var (
	oldest  = tenant{namespace: "cc", created: time.Unix(500, 0)}
	older   = tenant{namespace: "aa", created: time.Unix(1000, 0)}
	younger = tenant{namespace: "bb", created: time.Unix(2000, 0)}
)

func (o tenant) claim() Claim { return Claim{Name{o.namespace, "web" + o.suffix}, o.created} }

func (o tenant) route(kind MatchKind, path string) *Route {
	r := route(kind, path, []Backend{{Name: Name{o.namespace, "s" + o.suffix}, Port: "80"}})
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
		Claim: o.claim(), Hostname: host, Port: 443, TLS: true, ForceHTTPS: force, Secrets: []Name{{o.namespace, "tls" + o.suffix}}, Routes: routes,
	})
	return m
}

// tls is TLS of a host that a rule without host is for.
func (o tenant) tls(host string, force bool, routes ...*Route) Model {
	m := o.https(host, force, routes...)
	m.HTTP = m.HTTP[1:]
	return m
}

// absent is an object that is left out.
func (o tenant) absent(host string) Model {
	m := o.http(host)
	m.HTTP[0].Absent = true
	return m
}

func (o tenant) passthrough(host, service string) Model {
	p := Passthrough{Source: o.claim().Of, Created: o.created, Hostnames: []string{host}, Port: 443}
	if service != "" {
		p.Backends = []Backend{{Name: Name{o.namespace, service + o.suffix}, Port: "443"}}
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
		"TLS alone, wildcard":  {join([]Model{older.http("", older.route(Prefix, "/")), older.tls(shop, false, older.route(Prefix, "/"))}), younger.http("*.test", younger.route(Prefix, "/")), []ask{{false, shop, "/x", ""}, {false, "x.test", "/", "bb:s"}}, false},
		"TLS alone, its own":   {join([]Model{older.http("", older.route(Prefix, "/")), older.tls(shop, false, older.route(Prefix, "/"))}), younger.https(shop, true, younger.route(Prefix, "/b")), []ask{{false, shop, "/b", ""}}, true},
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

// ENV-33: the hosts of an object that has no place in the configuration are served to none: not by their names, nor by wider ones.
func TestAbsentOwner(t *testing.T) {
	for name, other := range map[string]Model{
		"the host":    join([]Model{younger.https("shop.test", true, younger.route(Prefix, "/")), younger.http("x.test", younger.route(Prefix, "/"))}),
		"a wildcard":  younger.https("*.test", true, younger.route(Prefix, "/")),
		"all hosts":   younger.http("", younger.route(Prefix, "/")),
		"TLS":         younger.tls("*.test", true, younger.route(Prefix, "/")),
		"an older":    oldest.https("*.test", false, oldest.route(Prefix, "/")),
		"passed":      younger.passthrough("*.test", "s"),
		"two of them": join([]Model{younger.http("*.test", younger.route(Prefix, "/")), oldest.https("", false, oldest.route(Prefix, "/"))}),
	} {
		both, problems := served(t, join([]Model{other, older.absent("shop.test")}))
		for _, tls := range []bool{false, true} {
			if got := request(both, tls, "shop.test", "/").To; got != "closed" && got != "no host" && got != "404" {
				t.Errorf("%s: TLS %t: %s", name, tls, got)
			}
		}
		if told := len(problems) > 0; told != (name == "the host") {
			t.Errorf("%s: the younger one is told: %t", name, told)
		}
	}
	mine, _ := served(t, join([]Model{older.absent("shop.test"), older.http("*.test", older.route(Prefix, "/")), younger.http("*.test", younger.route(Prefix, "/b"))}))
	if got := request(mine, false, "shop.test", "/b").To; got != "aa:s:80" {
		t.Errorf("beside a wildcard of its own: %s", got)
	}
}

// ENV-33, ING-31: where there is no space to close the hosts of an object that has no place in the configuration, wider names of others answer, and others that name them
// do not have them.
func TestUnclosedOwner(t *testing.T) {
	absent := older.absent("shop.test")
	for i := range absent.HTTP {
		absent.HTTP[i].Unclosed = true
	}
	for name, test := range map[string]struct {
		other Model
		want  string
	}{
		"the host":   {join([]Model{younger.http("shop.test", younger.route(Prefix, "/")), younger.http("x.test", younger.route(Prefix, "/"))}), "no host"},
		"a wildcard": {younger.http("*.test", younger.route(Prefix, "/")), "bb:s:80"},
		"all hosts":  {younger.http("", younger.route(Prefix, "/")), "bb:s:80"},
		"an older":   {oldest.http("*.test", oldest.route(Prefix, "/")), "cc:s:80"},
	} {
		both, _ := served(t, join([]Model{test.other, absent}))
		if got := request(both, false, "shop.test", "/").To; got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
		if hosts := len(both.Tables[plainTable].VirtualHosts); hosts != 1 {
			t.Errorf("%s: %d hosts are written", name, hosts)
		}
	}
}

// ENV-33: a host that its owner does not serve has of a wider name what older objects, and its owner's namespace, have there.
func TestClosedHosts(t *testing.T) {
	health, all := oldest.http("", oldest.route(Exact, "/healthz")), younger.http("", younger.route(Prefix, "/"))
	secure := join([]Model{oldest.https("", false, oldest.route(Prefix, "/a")), younger.https("", false, younger.route(Prefix, "/b"), younger.route(Prefix, "/a/b"))})
	for name, test := range map[string]struct {
		of   []Model
		tls  bool
		asks map[string]string // of shop.test
	}{
		"passed through":        {[]Model{health, older.passthrough("shop.test", "s"), all}, false, map[string]string{"/healthz": "cc:s:80", "/": "404"}},
		"many":                  {[]Model{health, older.passthrough("a.test", "s"), older.passthrough("shop.test", "s"), older.passthrough("*.b.test", "s"), all}, false, map[string]string{"/healthz": "cc:s:80", "/": "404"}},
		"a younger wildcard":    {[]Model{health, older.passthrough("shop.test", "s"), younger.http("*.test", younger.route(Prefix, "/"))}, false, map[string]string{"/healthz": "cc:s:80", "/": "404"}},
		"a redirect":            {[]Model{oldest.https("*.test", true, oldest.route(Prefix, "/a")), older.passthrough("shop.test", "s"), younger.http("*.test", younger.route(Prefix, "/a/b"))}, false, map[string]string{"/a/b": "redirect", "/b": "404"}},
		"without TLS":           {[]Model{older.http("shop.test", older.route(Prefix, "/")), secure}, true, map[string]string{"/a/b": "cc:s:80", "/b": "404"}},
		"nothing of a younger":  {[]Model{health, older.passthrough("shop.test", "s")}, false, map[string]string{"/healthz": "cc:s:80", "/": "404"}},
		"its namespace's own":   {[]Model{older.passthrough("shop.test", "s"), older.http("", older.route(Prefix, "/a")), all}, false, map[string]string{"/a": "aa:s:80", "/": "404"}},
		"the younger one alone": {[]Model{older.passthrough("shop.test", "s"), all}, false, map[string]string{"/": "404"}},
		"a closed wildcard":     {[]Model{health, older.passthrough("shop.test", "s"), younger.absent("*.test")}, false, map[string]string{"/healthz": "cc:s:80", "/": "404"}},
		"an older one left out": {[]Model{oldest.absent("*.test"), older.passthrough("shop.test", "s"), older.http("", older.route(Prefix, "/"))}, false, map[string]string{"/": "404"}},
	} {
		c, problems := served(t, join(test.of))
		for path, want := range test.asks {
			if got := request(c, test.tls, "shop.test", path).To; got != want {
				t.Errorf("%s: %s: %s, want %s", name, path, got, want)
			}
		}
		if name == "many" {
			if got := request(c, false, "x.b.test", "/healthz").To; got != "cc:s:80" || len(c.Tables[plainTable].VirtualHosts) != 2 {
				t.Errorf("%s, %d hosts", got, len(c.Tables[plainTable].VirtualHosts))
			}
		}
		if len(problems) > 0 && !test.tls {
			t.Errorf("%s: %v", name, problems)
		}
	}
}

// ENV-33: a host has what its owner's namespace asks for at a wider name, also where that belongs to a younger object.
func TestClosedHostOfWiderNames(t *testing.T) {
	own := tenant{namespace: "aa", created: time.Unix(3000, 0), suffix: "2"}
	c, _ := served(t, join([]Model{older.passthrough("shop.test", "s"), younger.tls("*.test", false, younger.route(Prefix, "/")), own.http("*.test", own.route(Prefix, "/a"))}))
	for path, want := range map[string]string{"/a": "aa:s2:80", "/": "404"} {
		if got := request(c, false, "shop.test", path).To; got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	if got := request(c, false, "x.test", "/a").To; got == "aa:s2:80" {
		t.Errorf("the wildcard of another namespace: %s", got)
	}
}

// ENV-33: hosts that have parts of a wider name do not multiply its routes. Those of the oldest objects have them.
func TestClosedHostsAreBounded(t *testing.T) {
	const n = 300
	var of []Model
	for i := range n {
		o := tenant{namespace: fmt.Sprint("n", i), created: time.Unix(int64(i), 0)}
		host := fmt.Sprintf("h%d.test", i)
		of = append(of, o.tls(host, false, o.route(Prefix, "/")), o.http("", o.route(Prefix, fmt.Sprint("/p", i))))
	}
	c, _ := served(t, join(of))
	all := 0
	for _, v := range c.Tables[plainTable].VirtualHosts {
		if v.Name != "*" {
			all += len(v.Routes)
		}
	}
	if all == 0 || all > mostLeft {
		t.Errorf("%d routes", all)
	}
	for host, want := range map[string]string{"h3.test": "n2:s:80", "h298.test": "404", "h299.test": "n2:s:80", "other.test": "n2:s:80"} {
		if got := request(c, false, host, "/p2").To; got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
}

// ENV-33, K3 of the contract's tenants.md: connections of closed hosts have a bound, too: each host would have a filter chain with what its namespace has at a
// wider name of another one.
func TestClosedConnectionsAreBounded(t *testing.T) {
	hosts := tenant{namespace: "bb", created: time.Unix(1, 0)}
	for name, wider := range map[string]func(tenant) Model{
		"certificates": func(o tenant) Model { return o.tls("*.evil.test", false, o.route(Prefix, "/")) },
		"backends":     func(o tenant) Model { return o.passthrough("*.evil.test", "s") },
	} {
		of := []Model{tenant{namespace: "cc", created: time.Unix(2, 0)}.tls("*.evil.test", false, oldest.route(Prefix, "/"))}
		for i := range 3000 {
			of = append(of, hosts.http(fmt.Sprintf("h%d.evil.test", i), hosts.route(Prefix, "/")))
		}
		for i := range 90 {
			of = append(of, wider(tenant{"bb", time.Unix(3, 0), fmt.Sprint("-", i)}))
		}
		m, _ := join(of).owned()
		all := 0
		for _, l := range m.HTTP {
			all += len(l.Secrets)
		}
		for _, p := range m.Passthrough {
			all += len(p.Backends)
		}
		if all > mostChained+len(of) {
			t.Errorf("%s: %d", name, all)
		}
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
