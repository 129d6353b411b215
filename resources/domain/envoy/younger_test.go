// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/domain/envoy/envoytest"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// object is what a random Ingress has.
type object struct {
	tenant
	Model
}

// objects are random Ingresses of four namespaces, of which each has some of different ages.
func (r random) objects() (all []object) {
	for i := range 2 + r.IntN(5) {
		of := tenant{pick(r, "aa", "bb", "cc", "dd"), time.Unix(int64(r.IntN(8)), 0), fmt.Sprint(i)}
		all = append(all, object{of, r.tenantModel(of)})
	}
	return all
}

func joined(all []object) (m Model) {
	for _, o := range all {
		m = join([]Model{m, o.Model})
	}
	return m
}

// tenantModel is what a random Ingress has.
func (r random) tenantModel(of tenant) Model {
	var parts []Model
	for range 1 + r.IntN(2) {
		host := pick(r, "", "a.test", "b.test", "a.b.test", "*.test", "*.test", "*.b.test")
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
		switch r.IntN(9) {
		case 0, 1:
			parts = append(parts, of.http(host, routes...))
		case 2, 3:
			parts = append(parts, of.https(host, r.IntN(2) == 0, routes...))
		case 4:
			parts = append(parts, of.passthrough(cmp.Or(host, "c.test"), pick(r, "", "s", "s")))
		case 5:
			claimed := of.http(cmp.Or(host, "c.test"))
			claimed.HTTP[0].Claimed = true
			parts = append(parts, claimed)
		case 6:
			parts = append(parts, of.absent(host))
		default:
			parts = append(parts, of.tls(cmp.Or(host, "c.test"), r.IntN(2) == 0, routes...), of.http("", routes...))
		}
	}
	return join(parts)
}

// named is the name that objects have for a host: it, or the nearest wildcard, by its distance. ok is false if there is none.
func named(all sharing, host string) (name string, at int, ok bool) {
	names := envoytest.NamesFor(host)
	at = slices.IndexFunc(names, func(name string) bool { return all[name] != nil })
	if at < 0 {
		return "", 0, false
	}
	return names[at], at, true
}

// ENV-33, for random Ingresses of four namespaces: what one of them adds changes nothing of what requests and connections for the hosts of older ones of
// other namespaces get, but for paths at the host itself that Kubernetes' rule puts first. No host is closed without need, nor open.
func TestYoungerChangesNothing(t *testing.T) {
	n := 250
	switch {
	case seedtest.Soak():
		n = 100_000
	case testing.Short() || seedtest.RaceEnabled:
		n = 60
	}
	r := random{rand.New(rand.NewPCG(seedtest.Seed(t), 1))}
	for i := range n {
		all := r.objects()
		y := r.IntN(len(all))
		others := slices.Delete(slices.Clone(all), y, y+1)
		c := change{younger: all[y], all: joined(all), sharing: joined(all).sharing()}
		c.with, _ = served(t, joined(all))
		c.without, _ = served(t, joined(others))
		for _, host := range []string{"a.test", "b.test", "a.b.test", "c.b.test", "c.test", "other.example"} {
			if what := c.check(host); what != "" {
				t.Fatalf("%d: %s: %s\nyounger %s\nall:%s", i, host, what, all[y].claim().Of, describe(all))
			}
		}
	}
}

func describe(all []object) string {
	var b strings.Builder
	for _, o := range all {
		fmt.Fprintf(&b, "\n%s, %d:", o.claim().Of, o.created.Unix())
		for _, l := range o.HTTP {
			fmt.Fprintf(&b, "\n\t%q TLS %t force %t absent %t claimed %t", l.Hostname, l.TLS, l.ForceHTTPS, l.Absent, l.Claimed)
			for _, r := range l.Routes {
				fmt.Fprintf(&b, " %d:%s %t", r.Path.Kind, r.Path.Value, r.Fallback)
			}
		}
		for _, p := range o.Passthrough {
			fmt.Fprintf(&b, "\n\t%s passed to %v", p.Hostnames, p.Backends)
		}
	}
	return b.String()
}

// change is what an object adds to others.
type change struct {
	younger       object
	all           Model
	sharing       sharing
	with, without *envoytest.Config
}

// check returns what has changed of what a host has that belongs to an older object of another namespace.
func (c change) check(host string) string {
	name, near, ok := named(c.sharing, host)
	if !ok {
		return ""
	}
	s := c.sharing[name]
	if s.owner.Of.Namespace == c.younger.namespace || c.younger.claim().compare(s.owner) < 0 {
		return ""
	}
	was, is := connection(c.without, host), connection(c.with, host)
	if was != is {
		return fmt.Sprintf("connections: %s, were %s", is, was)
	}
	tables := map[string]bool{plainTable: s.plain || s.forced} // whether it has paths, or redirects, there, beside which others may have some
	if strings.Contains(was, "tls") {
		tables[secureTable] = s.terminated
	}
	for table, isShared := range tables {
		for _, path := range []string{"/", "/a", "/a/b", "/a/b/c", "/a/x", "/b", "/b/c", "/z"} {
			was, is := routed(c.without, table, host, path), routed(c.with, table, host, path)
			isSame := was.To == is.To && was.Path == is.Path && was.Kind == is.Kind
			if !isSame && !(isShared && c.mayBecome(s, near, was, is)) {
				return fmt.Sprintf("%s %s: %s %s at %d, was %s %s at %d", table, path, is.To, is.Path, is.At, was.To, was.Path, was.At)
			}
		}
	}
	if is := routed(c.with, secureTable, host, "/"); tables[secureTable] || c.isYounger(is) == c.isYounger(routed(c.without, secureTable, host, "/")) {
		return ""
	}
	return "it has requests in connections for other hosts"
}

func (c change) isYounger(is envoytest.Answer) bool {
	return strings.Contains(is.To, c.younger.namespace+":")
}

// connection is what becomes of a TLS connection: the certificates, or where it goes.
func connection(c *envoytest.Config, host string) string {
	a := request(c, true, host, "/")
	return cmp.Or(a.Secrets, a.To)
}

func routed(c *envoytest.Config, table, host, path string) envoytest.Answer {
	if c == nil {
		return envoytest.Answer{To: "404"}
	}
	a := envoytest.Routed(c.Tables[table], host, path)
	if a.To == "no host" {
		a.To = "404"
	}
	return a
}

// mayBecome reports whether the younger object may make one answer of another one, for a host where the owner's namespace has paths. It is named at a distance.
func (c change) mayBecome(s *shares, near int, was, is envoytest.Answer) bool {
	at, isNamed := s.oldest[c.younger.namespace]
	if s.oldest == nil {
		at, isNamed = s.owner, s.owner.Of.Namespace == c.younger.namespace
	}
	if !isNamed || was.At != near || is.At != near {
		return false
	}
	if c.isYounger(is) || is.To == "redirect" {
		if was.To == "404" || was.Kind == "prefix" && is.Kind != "regex" && len(is.Path) > len(was.Path) {
			return true
		}
	}
	for namespace, other := range s.oldest { // that shares the host, too
		if namespace != s.owner.Of.Namespace && at.compare(other) <= 0 && c.isOf(namespace, s, was) {
			return !c.isOf(s.owner.Of.Namespace, s, was)
		}
	}
	return false
}

// isOf reports whether a namespace may have an answer by its name for a host.
func (c change) isOf(namespace string, s *shares, a envoytest.Answer) bool {
	if a.To != "redirect" {
		return strings.Contains(a.To, namespace+":")
	}
	kind := map[MatchKind]string{Exact: "exact", Prefix: "prefix", Regex: "regex"}
	return slices.ContainsFunc(c.all.HTTP, func(l Listener) bool {
		return l.ForceHTTPS && l.Of.Namespace == namespace && c.sharing[orAll(l.Hostname)] == s && slices.ContainsFunc(l.Routes, func(r *Route) bool {
			return kind[r.normalPath().Kind] == a.Kind && r.normalPath().Value == a.Path
		})
	})
}
