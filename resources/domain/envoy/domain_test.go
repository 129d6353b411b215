// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/skep-operator/skep/resources/domain/envoy/envoytest"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// documented is the virtual host that a table has for a Host, as Envoy's documentation of VirtualHost.domains has it; nil for none.
func documented(table *routev3.RouteConfiguration, host string) *routev3.VirtualHost {
	host = strings.ToLower(host)
	if at := strings.LastIndexByte(host, ':'); at >= 0 && table.IgnorePortInHostMatching {
		host = host[:at]
	}
	byDomain := byDomain(table)
	if v := byDomain[host]; v != nil {
		return v // also one that has a wildcard in its text
	}
	for at := 1; at < len(host); at++ { // of suffixes the longest first; a wildcard is not for nothing
		if v := byDomain["*"+host[at:]]; v != nil {
			return v
		}
	}
	for at := len(host) - 1; at > 0; at-- {
		if v := byDomain[host[:at]+"*"]; v != nil && !strings.HasPrefix(host, "*") {
			return v
		}
	}
	return byDomain["*"]
}

// byDomain are the virtual hosts of a table, by their domains.
func byDomain(table *routev3.RouteConfiguration) map[string]*routev3.VirtualHost {
	if lastTable == table {
		return lastDomains
	}
	lastTable, lastDomains = table, map[string]*routev3.VirtualHost{}
	for _, v := range table.VirtualHosts {
		for _, d := range v.Domains {
			lastDomains[d] = v
		}
	}
	return lastDomains
}

// What byDomain has found last.
var (
	lastTable   *routev3.RouteConfiguration
	lastDomains map[string]*routev3.VirtualHost
)

// compiled is a regular expression that matches whole values, as Envoy's do.
func compiled(text string) *regexp.Regexp {
	if expressions[text] == nil {
		expressions[text] = regexp.MustCompile("^(?:" + text + ")$")
	}
	return expressions[text]
}

var expressions = map[string]*regexp.Regexp{}

// answerOf is the cluster that a table sends a request to, or 404.
func answerOf(t *testing.T, table *routev3.RouteConfiguration, host, path string) string {
	t.Helper()
	for _, r := range documented(table, host).GetRoutes() {
		if m := r.Match; m.GetPath() != path && m.GetPrefix() != "/" {
			continue
		}
		matches := true
		for _, h := range r.Match.Headers {
			s := h.GetStringMatch()
			switch {
			case h.Name != ":authority":
				t.Fatalf("a match of %s", h.Name)
			case s.GetContains() != "" && s.IgnoreCase:
				matches = matches && strings.Contains(strings.ToLower(host), s.GetContains())
			default:
				matches = matches && compiled(s.GetSafeRegex().Regex).MatchString(host)
			}
		}
		switch {
		case !matches:
		case r.GetDirectResponse() != nil:
			return strconv.Itoa(int(r.GetDirectResponse().Status))
		default:
			return r.GetRoute().GetCluster()
		}
	}
	return "404"
}

// asked are the hosts of a random model, and what each has at each port: by host name the cluster of a path.
type asked map[uint32]map[string]map[string]string

// best is the most specific host name that is for a host.
func (a asked) best(port uint32, host string) (name string, found bool) {
	for candidate := range a[port] {
		isFor := candidate == host || candidate == "*" || strings.HasPrefix(candidate, "*.") && strings.HasSuffix(host, candidate[1:])
		if exact := candidate == host; isFor && (exact || name != host && len(candidate) > len(name)) {
			name, found = candidate, true
		}
	}
	return name, found
}

// want is the answer by ENV-41: came is the port that a request came to, where that is known, and 0 elsewhere.
func (a asked) want(host, port, path string, came, ofScheme uint32, oneLabel bool) string {
	var ports []uint32
	for p := range a {
		ports = append(ports, p)
	}
	at := mainPort(ports, ofScheme)
	if came != 0 {
		at = came
	} else if number, err := strconv.Atoi(port); err == nil {
		if _, found := a.best(uint32(number), host); found {
			at = uint32(number)
		}
	}
	name, found := a.best(at, host)
	if oneLabel && strings.HasPrefix(name, "*.") && strings.Contains(strings.TrimSuffix(host, name[1:]), ".") {
		found = false
	}
	if !found {
		return "404"
	}
	for _, p := range []string{path, "/"} {
		if cluster := a[at][name][p]; cluster != "" {
			return cluster
		}
	}
	return "404"
}

var hostsOfDomains = []string{"*", "*.com", "*.foo.com", "foo.com", "a.foo.com", "*.a.foo.com", "b.a.foo.com", "*.b.a.foo.com", "x.org", "*.org"}

// domains is a model of listeners for random hosts at random ports, of one table.
func (r random) domains(tls bool, ports ...uint32) (m Model, all asked) {
	all = asked{}
	for _, port := range ports {
		for range 1 + r.IntN(4) {
			name := pick(r, hostsOfDomains...)
			if all[port] == nil {
				all[port] = map[string]map[string]string{}
			}
			if all[port][name] != nil {
				continue
			}
			l := Listener{Hostname: strings.TrimPrefix(name, "*"), Port: port, TLS: tls, Exclusive: true}
			if name != "*" {
				l.Hostname = name
			}
			if tls {
				l.Secrets = []Name{{"n", "t"}}
			}
			names := []string{name}
			all[port][name] = map[string]string{}
			if more := pick(r, hostsOfDomains...); r.IntN(3) == 0 && all[port][more] == nil { // of a route alone
				names = []string{more}
				all[port][more] = map[string]string{}
			}
			for _, path := range []string{"/", "/p"} {
				if r.IntN(3) == 0 {
					continue
				}
				one := route(Prefix, path, to(fmt.Sprintf("s%d-%d", port, len(m.HTTP)), "80"))
				if path != "/" {
					one.Path.Kind = Exact
				}
				l.Named = append(l.Named, NamedRoutes{names, []Route{*one}})
				all[port][names[0]][path] = one.Backends[0].cluster()
			}
			if len(l.Named) == 0 && names[0] != name {
				delete(all[port], names[0])
			}
			m.HTTP = append(m.HTTP, l)
		}
	}
	return m, all
}

// ENV-41: whatever hosts and ports there are, the most specific host of the port answers a request, with a port in Host and without.
func TestDomains(t *testing.T) {
	n := 600
	switch {
	case seedtest.Soak():
		n = 30_000
	case testing.Short() || seedtest.RaceEnabled:
		n = 150
	}
	gateway := options
	gateway.OneLabelWildcards, gateway.FirstWins, gateway.PortHosts = false, true, true
	perPort := gateway
	perPort.PerPort = true
	r := random{rand.New(rand.NewPCG(seedtest.Seed(t), 0))}
	for i := range n {
		o, tls := pick(r, options, gateway, gateway, perPort), r.IntN(2) == 0
		ports := []uint32{pick(r, uint32(80), 443, 8080)}
		if o.PortHosts {
			ports = slices.Compact(slices.Sorted(slices.Values([]uint32{80, 443, 8080, 9090, 12345}[:1+r.IntN(5)])))
		}
		m, all := r.domains(tls, ports...)
		result, err := new(Translator).Translate(m, o)
		if err != nil {
			t.Fatal(err)
		}
		c, err := envoytest.Verify(result.Spec)
		if err != nil {
			t.Fatalf("model %d: %v", i, err)
		}
		checkAnswers(t, c, all, tls, o)
		if t.Failed() {
			for _, table := range c.Tables {
				for _, v := range table.VirtualHosts {
					t.Log(table.Name, table.IgnorePortInHostMatching, v.Domains)
				}
			}
			t.Fatalf("model %d, TLS %t: %v", i, tls, all)
		}
	}
}

// checkAnswers asks for hosts with and without ports.
func checkAnswers(t *testing.T, c *envoytest.Config, all asked, tls bool, o Options) {
	t.Helper()
	ofScheme, table := uint32(80), c.Tables[plainTable]
	if tls {
		ofScheme, table = 443, c.Tables[secureTable]
	}
	hosts := []string{"other.net", "z.com", "Z.Foo.com", "z.b.a.foo.com", "z.org"}
	for _, name := range hostsOfDomains {
		if !isWildcard(name) {
			hosts = append(hosts, name)
		}
	}
	for came := range all {
		known := came
		if own := c.Tables[fmt.Sprintf("%s-%d", listenerName, came)]; own != nil {
			table = own
		} else {
			known = 0
		}
		for _, host := range hosts {
			for _, port := range []string{"", "80", "443", "8080", "9090", "12345", "7777"} {
				text := host
				if port != "" {
					text += ":" + port
				}
				for _, path := range []string{"/p", "/q"} {
					got, want := answerOf(t, table, text, path), all.want(strings.ToLower(host), port, path, known, ofScheme, o.OneLabelWildcards)
					if got != want {
						t.Errorf("%s%s at port %d: %s, want %s", text, path, came, got, want)
						return
					}
				}
			}
		}
	}
}
