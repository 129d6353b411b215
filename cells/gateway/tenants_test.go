// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/domain/envoy/envoytest"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// tenant is the random objects of a namespace, created from a second on.
type tenant struct {
	*rand.Rand
	namespace string
	created   slim.Time
	routes    []*route.Route
	sets      []*listenerSet
	names     map[bool]map[string]bool // of hosts, by whether they are for TLS
	listened  map[string]bool          // those of listeners of ListenerSets
}

func newTenant(r *rand.Rand, namespace string, created slim.Time) *tenant {
	return &tenant{Rand: r, namespace: namespace, created: created, names: map[bool]map[string]bool{false: {}, true: {}}, listened: map[string]bool{}}
}

func (n *tenant) pick(all ...string) string { return all[n.IntN(len(all))] }

// host is a host name, "" for all, which the tenant names for plain requests, or those with TLS, or both.
func (n *tenant) host(protocols ...bool) string {
	host := n.pick("", "a.test", "b.test", "a.b.test", "*.test", "*.b.test")
	for _, tls := range protocols {
		n.names[tls][cmp.Or(host, "*")] = true
	}
	return host
}

// route is a route at a parent, for plain requests, or those with TLS, or both.
func (n *tenant) route(t *testing.T, parent string, protocols ...bool) {
	hosts := ""
	if host := n.host(protocols...); host != "" {
		hosts = fmt.Sprintf(", hostnames: [%q]", host)
	}
	match := fmt.Sprintf("{path: {type: %s, value: %s}}", n.pick("PathPrefix", "PathPrefix", "Exact"), n.pick("/", "/a", "/a/b", "/b"))
	if n.IntN(4) == 0 {
		match = fmt.Sprintf("{path: {type: RegularExpression, value: %q}}", n.pick("/.*", "/a.*", "/[a-z]", "/b/c"))
	}
	grpc := n.IntN(4) == 0
	if grpc {
		match = n.pick("{method: {service: a}}", "{method: {service: b}}", "{method: {method: b}}", "{method: {service: a, method: b}}")
	}
	text := fmt.Sprintf("{metadata: {name: r%d, namespace: %s, generation: 1}, spec: {parentRefs: [%s]%s, rules: [{matches: [%s], backendRefs: [{name: s, port: 80}]}]}}", len(n.routes), n.namespace, parent, hosts, match)
	var r *route.Route
	if grpc {
		r = parse[route.GRPC](t, text).Route()
	} else {
		r = parse[route.HTTP](t, text).Route()
	}
	r.CreationTimestamp = n.created + slim.Time(len(n.routes))
	n.routes = append(n.routes, r)
}

// set is a ListenerSet with a route.
func (n *tenant) set(t *testing.T) {
	var all []string
	for i := range 1 + n.IntN(3) {
		protocol := n.pick("port: 80, protocol: HTTP", "port: 80, protocol: HTTP", "port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}", "port: 443, protocol: TLS, tls: {mode: Passthrough}",
			"port: 443, protocol: TLS, tls: {certificateRefs: [{name: cert}]}", "port: 443, protocol: TLS, tls: {certificateRefs: [{name: none}]}")
		tls, text := strings.Contains(protocol, "tls"), fmt.Sprintf("{name: l%d, %s", i, protocol)
		if host := n.host(tls); host != "" {
			text += fmt.Sprintf(", hostname: %q", host)
			n.listened[host] = true
		}
		all = append(all, text+"}")
	}
	name := fmt.Sprint("set", len(n.sets))
	s := parse[listenerSet](t, fmt.Sprintf("{metadata: {name: %s, namespace: %s, uid: %s-%s, generation: 1}, spec: {parentRef: {name: edge, namespace: infra}, listeners: [%s]}}", name, n.namespace, n.namespace, name, strings.Join(all, ", ")))
	s.CreationTimestamp = n.created + slim.Time(len(n.sets))
	n.sets = append(n.sets, s)
	parent := fmt.Sprintf("{kind: ListenerSet, name: %s, namespace: %s}", name, n.namespace)
	n.route(t, parent, false, true)
	if n.IntN(2) == 0 {
		hosts := cmp.Or(n.host(true), "*.test")
		r := parse[route.TLS](t, fmt.Sprintf("{metadata: {name: %s-tls, namespace: %s, generation: 1}, spec: {parentRefs: [%s], hostnames: [%q], rules: [{backendRefs: [{name: s, port: 80}]}]}}", name, n.namespace, parent, hosts)).Route()
		n.names[true][hosts] = true
		r.CreationTimestamp = n.created + slim.Time(len(n.routes))
		n.routes = append(n.routes, r)
	}
}

// nearest is the name that a tenant has for a host, by its distance: 0 for the host itself.
func (n *tenant) nearest(tls bool, host string) int {
	names := envoytest.NamesFor(host)
	return slices.IndexFunc(append(names, ""), func(name string) bool { return n.names[tls][name] || name == "" })
}

// GW-51 and GW-60, K1 of the contract's tenants.md, for random routes and ListenerSets of two namespaces: what the younger ones add changes nothing of
// what becomes of the older ones' requests, nor of the certificate that a client sees, but for paths that the Gateway API puts first. GW-64: where a route of the
// older ones is cut, none of their requests go to the younger ones.
func TestYoungerChangesNothing(t *testing.T) {
	n := 1000
	switch {
	case seedtest.Soak():
		n = 50_000
	case testing.Short() || seedtest.RaceEnabled:
		n = 150
	}
	const own = `[{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}},
		{name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}, allowedRoutes: {namespaces: {from: All}}}]`
	c := objects{services: map[slim.Key]bool{}, secrets: map[slim.Key]bool{}}
	for _, namespace := range []string{"infra", "aa", "bb"} {
		c.services[slim.Key{Namespace: namespace, Name: "s"}], c.secrets[slim.Key{Namespace: namespace, Name: "cert"}] = true, true
	}
	g := edgeOf(t, "{from: All}", own)
	oneListener := true
	served := func(sets []*listenerSet, routes []*route.Route) *envoytest.Config {
		plan := (&planner{oneListener: oneListener}).plan(g, sets, routes, c.lookup)
		of, err := new(envoy.Translator).Translate(plan.model, envoy.Options{Service: envoy.Name{Namespace: "infra", Name: "s"}, SecretsNamespace: "x", FirstWins: true, ByAge: true, PortHosts: true, PerPort: !oneListener})
		if err != nil {
			t.Fatal(err)
		}
		if of.Empty {
			return nil
		}
		config, err := envoytest.Verify(of.Spec)
		if err != nil {
			t.Fatal(err)
		}
		return config
	}
	r := rand.New(rand.NewPCG(seedtest.Seed(t), 1))
	paths := []string{"/", "/a", "/a/b", "/a/x", "/b", "/b/c", "/z"}
	const toGateway = "{name: edge, namespace: infra%s}"
	for i := range n {
		a, b := newTenant(r, "aa", 10), newTenant(r, "bb", 100)
		for _, of := range []*tenant{a, a, a, b, b} {
			if of == b && r.IntN(2) == 0 {
				continue
			}
			switch r.IntN(4) {
			case 0:
				of.route(t, fmt.Sprintf(toGateway, ", sectionName: http"), false)
			case 1:
				of.route(t, fmt.Sprintf(toGateway, ", sectionName: https"), true)
			default:
				of.route(t, fmt.Sprintf(toGateway, ""), false, true)
			}
		}
		for range r.IntN(3) {
			b.set(t)
		}
		if r.IntN(3) == 0 { // whether its routes have their hosts at its listeners is not known here: they are not among its names
			names := map[bool]map[string]bool{false: maps.Clone(a.names[false]), true: maps.Clone(a.names[true])}
			a.set(t)
			a.names = names
		}
		oneListener = r.IntN(2) == 0
		sets := slices.Concat(b.sets, a.sets)
		alone, both := served(a.sets, a.routes), served(sets, slices.Concat(b.routes, a.routes))
		less := served(sets, slices.Concat(b.routes, withOneCut(r, a.routes)))
		for _, host := range []string{"a.test", "b.test", "a.b.test", "c.b.test", "c.test", "other.example"} {
			for _, tls := range []bool{false, true} {
				for _, path := range paths {
					if was, is := both.Answer("listener", tls, host, path), less.Answer("listener", tls, host, path); strings.HasPrefix(was.To, "aa:") && strings.HasPrefix(is.To, "bb:") {
						t.Fatalf("%d: TLS %t %s%s: %s, was %s before a route was cut\n%s", i, tls, host, path, is, was, describe(a, b))
					}
				}
				if slices.ContainsFunc(envoytest.NamesFor(host), func(name string) bool { return a.listened[name] }) {
					continue // a listener of its own has the requests in place of those for which its routes name the host
				}
				near := a.nearest(tls, host)
				if b.nearest(tls, host) < near || near == len(envoytest.NamesFor(host)) {
					continue // the younger one names it better, or the older one does not
				}
				for _, path := range paths {
					was, is := alone.Answer("listener", tls, host, path), both.Answer("listener", tls, host, path)
					if b.nearest(tls, host) < was.At && (is.To == "404" || is.To == "closed") {
						continue // its own wider name would have answered, and the younger one's is nearer
					}
					if !mayBecome(was, is) {
						t.Fatalf("%d: TLS %t %s%s: %s (%s %s), was %s (%s %s)\n%s", i, tls, host, path, is, is.Kind, is.Path, was, was.Kind, was.Path, describe(a, b))
					}
				}
			}
		}
	}
}

// withOneCut is routes of which one is cut.
func withOneCut(r *rand.Rand, all []*route.Route) []*route.Route {
	all = slices.Clone(all)
	i := r.IntN(len(all))
	large, meta := *all[i], *all[i].ObjectMeta
	large.ObjectMeta = &meta
	all[i] = cutRoute(&large)
	return all
}

// mayBecome reports whether younger objects of another namespace may make one answer of another one: a host without a route for the request may get one,
// and a path that is more specific goes first.
func mayBecome(was, is envoytest.Answer) bool {
	was.At, is.At = 0, 0
	byYounger := strings.HasPrefix(is.To, "bb:")
	switch {
	case was == is:
		return true
	case was.To == "closed" || was.To == "no host" || was.To == "404":
		return byYounger || is.To == "closed" || is.To == "no host" || is.To == "404"
	case was.Secrets != is.Secrets || !byYounger:
		return false
	}
	return is.Kind == "exact" && was.Kind != "exact" || is.Kind == "prefix" && was.Kind == "prefix" && len(is.Path) > len(was.Path)
}

// describe is the objects of tenants, for a failure.
func describe(all ...*tenant) string {
	var b strings.Builder
	for _, n := range all {
		for _, r := range n.routes {
			fmt.Fprintf(&b, "%s %s at %d: %v", r.Kind, r.Source(), r.CreationTimestamp, r.Hostnames)
			for _, ref := range r.Parents {
				section := ""
				if ref.SectionName != nil {
					section = string(*ref.SectionName)
				}
				fmt.Fprintf(&b, " %s %s", ref.Name, section)
			}
			b.WriteByte('\n')
		}
		for _, s := range n.sets {
			fmt.Fprintf(&b, "ListenerSet %s/%s at %d:", s.Namespace, s.Name, s.CreationTimestamp)
			for _, l := range s.Spec.Listeners {
				host := gatewayv1.Hostname("")
				if l.Hostname != nil {
					host = *l.Hostname
				}
				fmt.Fprintf(&b, " %s %d %q", l.Protocol, l.Port, host)
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}
