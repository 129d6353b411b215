// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/domain/envoy/envoytest"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// sharedByAll has listeners of HTTP for all namespaces.
const sharedByAll = `{metadata: {name: edge, namespace: infra, uid: g}, spec: {allowedListeners: {namespaces: {from: All}}, listeners: [
{name: a, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}]}}`

// manyMatches has hosts of its own, and matches at each of them, with long names of backends.
func manyMatches(t *testing.T, namespace, name string, second, matches int) *route.Route {
	t.Helper()
	var hosts, paths, refs []string
	for i := range 16 {
		hosts = append(hosts, fmt.Sprintf("h%d.%s.%s.test", i, name, namespace))
		refs = append(refs, "{name: v1, port: 80}")
	}
	for i := range matches {
		paths = append(paths, fmt.Sprintf("{path: {type: Exact, value: /%d}}", i))
	}
	return parse[route.HTTP](t, fmt.Sprintf(
		"{metadata: {name: %s, namespace: %s, uid: %s-%s, creationTimestamp: \"2026-01-01T00:00:%02dZ\"}, spec: {parentRefs: [{name: edge, namespace: infra}], hostnames: [%s], rules: [{matches: [%s], backendRefs: [%s]}]}}",
		name, namespace, namespace, name, second, strings.Join(hosts, ", "), strings.Join(paths, ", "), strings.Join(refs, ", "))).Route()
}

// packedGateway plans a Gateway, and packs it.
type packedGateway struct {
	t *testing.T
	s *state
	g *gateway
	c objects

	size int // of the configuration
}

func newPackedGateway(t *testing.T) *packedGateway {
	t.Helper()
	c := objects{services: map[slim.Key]bool{}, secrets: map[slim.Key]bool{}}
	for _, namespace := range []string{"aa", "bb"} {
		c.services[slim.Key{Namespace: namespace, Name: "v1"}] = true
	}
	return &packedGateway{t: t, s: &state{}, g: parse[gateway](t, sharedByAll), c: c}
}

// pack returns the plan, and the configuration that fits.
func (p *packedGateway) pack(sets []*listenerSet, routes ...*route.Route) (*gatewayPlan, *envoytest.Config) {
	p.t.Helper()
	lookup := func(q route.Query) route.Answer {
		if q.About == route.AboutFleet { // agents that ask servers about requests
			return route.Answer{Exists: true}
		}
		return p.c.lookup(q)
	}
	again := func() *gatewayPlan { return p.s.planner.plan(p.g, sets, routes, lookup) }
	o := envoy.Options{Service: envoy.Name{Namespace: "infra", Name: "edge"}, SecretsNamespace: "copies", FirstWins: true, PortHosts: true, PerPort: true}
	plan, packed, err := pack(p.s, again(), o, again)
	if err != nil {
		p.t.Fatal(err)
	}
	p.size = len(packed.spec.JSON)
	p.t.Logf("the configuration has %d bytes", p.size)
	if len(packed.spec.JSON) > envoy.MaxSize {
		p.t.Errorf("it has %d bytes", len(packed.spec.JSON))
	}
	if again().assembly != plan.assembly {
		p.t.Error("the same is planned anew")
	}
	t, err := p.s.translator.Translate(plan.model, o)
	if err != nil {
		p.t.Fatal(err)
	}
	config, err := envoytest.Verify(t.Spec)
	if err != nil {
		p.t.Fatal(err)
	}
	return plan, config
}

// leftOutOf are the ids of routes that are left out.
func leftOutOf(plan *gatewayPlan) (ids []string) {
	for id, refused := range plan.refused {
		for _, why := range refused {
			if why.Reason == leftOut {
				ids = append(ids, id.String())
				break
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// GW-54: K3 of the contract's tenants.md. Routes of one namespace that do not fit are left out, the youngest first; those of others come and go, and
// the hosts of what is left out are those of no other object.
func TestRoutesArePacked(t *testing.T) {
	p := newPackedGateway(t)
	first, second := manyMatches(t, "bb", "first", 1, 50), manyMatches(t, "bb", "second", 2, 50)
	small := manyMatches(t, "aa", "small", 9, 1)
	wide := parse[route.HTTP](t, `{metadata: {name: wide, namespace: aa, uid: wide, creationTimestamp: "2026-01-01T00:00:08Z"}, spec: {parentRefs: [{name: edge, namespace: infra}], rules: [{backendRefs: [{name: v1, port: 80}]}]}}`).Route()
	third := manyMatches(t, "bb", "third", 3, 50)
	for _, step := range []struct {
		what   string
		routes []*route.Route
		out    []string
	}{
		{"what fits", []*route.Route{first, small}, nil},
		{"one is too many", []*route.Route{first, second, third, small, wide}, []string{"bb/HTTPRoute/third"}},
		{"the other namespace adds nothing", []*route.Route{first, second, third, small}, []string{"bb/HTTPRoute/third"}},
		{"space again", []*route.Route{first, third, small, wide}, nil},
	} {
		plan, config := p.pack(nil, step.routes...)
		if got := leftOutOf(plan); !slices.Equal(got, step.out) {
			t.Errorf("%s: %q are left out, want %q", step.what, got, step.out)
		}
		if want := int32(len(step.routes) - len(step.out)); plan.attached[plan.own[0]] != want {
			t.Errorf("%s: %d routes are attached, want %d", step.what, plan.attached[plan.own[0]], want)
		}
		routes := map[string]int{}
		for _, v := range config.Tables["listener-insecure"].VirtualHosts {
			routes[v.Domains[0]] = len(v.Routes)
		}
		for _, r := range step.routes {
			host := "h0." + r.Name + "." + r.Namespace.String() + ".test"
			n, exists := routes[host]
			switch {
			case r == wide:
			case !exists:
				t.Errorf("%s: there is no host %s", step.what, host)
			case (n == 0) != slices.Contains(step.out, r.ID().String()):
				t.Errorf("%s: %s has %d routes", step.what, host, n)
			}
		}
	}
}

// GW-54, ENV-30: once something is gone all is tried anew, whatever the limit was.
func TestTheLimitIsNotKept(t *testing.T) {
	p := newPackedGateway(t)
	first, second, third := manyMatches(t, "bb", "first", 1, 50), manyMatches(t, "bb", "second", 2, 50), manyMatches(t, "aa", "third", 3, 50)
	if plan, _ := p.pack(nil, first, second, third); len(leftOutOf(plan)) == 0 {
		t.Fatal("all fit")
	}
	p.s.planner.packing.limit = 1000 // of which nothing is known any more
	if plan, _ := p.pack(nil, first, second); len(leftOutOf(plan)) > 0 {
		t.Errorf("what is gone has %q left out", leftOutOf(plan))
	}
}

// GW-54, K8S-25: what is left out has the message of its own size, whatever older routes of others have: they would have its status written each time.
func TestMessagesAreOfOwnSizes(t *testing.T) {
	p := newPackedGateway(t)
	older := func(filters int) *route.Route {
		var rules []string
		for n := range max(1, filters) {
			rule := fmt.Sprintf("{matches: [{path: {value: /%d}}], backendRefs: [{name: v1, port: 80}]", n)
			if n < filters {
				rule += fmt.Sprintf(", filters: [{type: ExternalAuth, externalAuth: {protocol: HTTP, backendRef: {name: v1, port: 80}, http: {path: /%d}}}]", n)
			}
			rules = append(rules, rule+"}")
		}
		return parse[route.HTTP](t, fmt.Sprintf(`{metadata: {name: older, namespace: aa, uid: "%d", generation: %d, creationTimestamp: "2026-01-01T00:00:00Z"}, spec: {parentRefs: [{name: edge, namespace: infra}], hostnames: [a.test], rules: [%s]}}`,
			filters, 1+filters, strings.Join(rules, ", "))).Route()
	}
	first, second, third := manyMatches(t, "bb", "first", 1, 30), manyMatches(t, "bb", "second", 2, 30), manyMatches(t, "bb", "third", 3, 98)
	messages := map[string]bool{}
	for _, filters := range []int{0, 2, 0, 3, 1} {
		p.pack(nil, older(filters), first, second, third)
		plan, _ := p.pack(nil, older(filters), first, second, third)
		if out := leftOutOf(plan); !slices.Equal(out, []string{"bb/HTTPRoute/third"}) {
			t.Fatalf("with %d filters %q are left out", filters, out)
		}
		for _, why := range plan.refused[third.ID()] {
			messages[why.Message] = true
		}
	}
	if len(messages) != 1 {
		t.Errorf("what is left out has %d messages: %q", len(messages), slices.Sorted(maps.Keys(messages)))
	}
}

// GW-54, ENV-30: a route of a ListenerSet that is left out is tried anew as soon as it is smaller, and not at each change.
func TestRoutesOfWhatIsLeftOutCount(t *testing.T) {
	was := routeSize{rules: 1000, names: 100, own: 800, one: 400, hosts: 40, at: 4}
	for _, test := range []struct {
		what      string
		now, want routeSize
	}{
		{"it is the same", routeSize{0, 0, 0, 400, 40, 4}, routeSize{1000, 100, 800, 400, 40, 4}},
		{"it is larger", routeSize{0, 0, 0, 500, 50, 4}, routeSize{1000, 100, 800, 500, 50, 4}},
		{"it is half as large", routeSize{0, 0, 0, 200, 40, 4}, routeSize{500, 100, 400, 200, 40, 4}},
		{"it has half of the names", routeSize{0, 0, 0, 400, 20, 4}, routeSize{500, 50, 400, 400, 20, 4}},
		{"more listeners serve it", routeSize{1200, 120, 900, 400, 40, 4}, routeSize{1200, 120, 900, 400, 40, 4}},
		{"half of the listeners are left", routeSize{0, 0, 0, 400, 40, 2}, routeSize{500, 50, 400, 400, 40, 2}},
		{"nothing is left", routeSize{}, routeSize{}},
	} {
		if got := test.now.atLeast(was); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.what, got, test.want)
		}
	}
	large := routeSize{rules: 1 << 41, own: 1 << 41, one: 1 << 26}
	if got := (routeSize{one: 1 << 25}).atLeast(large); got.rules != 1<<40 {
		t.Errorf("half of a vast route is %+v", got)
	}
	if got := (routeSize{5, 1, 5, 10, 1, 1}).atLeast(routeSize{}); got != (routeSize{5, 1, 5, 10, 1, 1}) {
		t.Errorf("a new route is %+v", got)
	}
}

// GW-54: what a route is itself, by which one counts whose listeners are left out, gets smaller with its spec: of each kind.
func TestOwnSizeOfRoutes(t *testing.T) {
	spec := func(hosts, backends int) string {
		var names, refs []string
		for i := range hosts {
			names = append(names, fmt.Sprintf("h%02d.test", i))
		}
		for i := range backends {
			refs = append(refs, fmt.Sprintf("{name: b%02d, port: 80}", i))
		}
		return fmt.Sprintf("{metadata: {name: r, namespace: aa}, spec: {parentRefs: [{name: edge}], hostnames: [%s], rules: [{backendRefs: [%s]}]}}", strings.Join(names, ", "), strings.Join(refs, ", "))
	}
	of := func(hosts, backends int) (int, int) {
		return sizeOfOwn(parse[route.TLS](t, spec(hosts, backends)).Route(), 0)
	}
	one, hosts := of(10, 10)
	if less, same := of(10, 5); 2*less != one || same != hosts {
		t.Errorf("a TLSRoute with half of its backends is %d and %d, of %d and %d", less, same, one, hosts)
	}
	if same, less := of(5, 10); same != one || 2*less != hosts {
		t.Errorf("a TLSRoute with half of its names is %d and %d, of %d and %d", same, less, one, hosts)
	}
	if one, hosts := sizeOfOwn(parse[route.HTTP](t, spec(2, 10)).Route(), 1000); one != 1000 || hosts != 2*envoy.HostSize("h00.test") {
		t.Errorf("an HTTPRoute is %d and %d", one, hosts)
	}
}

// GW-54: a ListenerSet that does not fit is left out with the certificates that it has, and says so.
func TestListenerSetsArePacked(t *testing.T) {
	p := newPackedGateway(t)
	set := func(namespace, name string, second, listeners, certificates int) *listenerSet {
		var all []string
		for i := range listeners {
			var refs []string
			for c := range certificates {
				secret := fmt.Sprintf("%s-%0200d", name, i*certificates+c)
				p.c.secrets[slim.Key{Namespace: namespace, Name: secret}] = true
				refs = append(refs, fmt.Sprintf("{name: %q}", secret))
			}
			all = append(all, fmt.Sprintf("{name: l%d, port: 443, protocol: HTTPS, hostname: h%d.%s.%s.test, tls: {certificateRefs: [%s]}}", i, i, name, namespace, strings.Join(refs, ", ")))
		}
		return setOf(t, name, namespace, 50-second, "["+strings.Join(all, ", ")+"]")
	}
	small, first, second := set("aa", "small", 9, 1, 1), set("bb", "first", 1, 64, 64), set("bb", "second", 2, 64, 64)
	plan, _ := p.pack([]*listenerSet{small, first, second})
	out := map[string]bool{}
	for _, s := range plan.sets {
		out[s.of.Name] = s.leftOut() != nil
		for _, l := range s.listeners {
			if !out[s.of.Name] && !l.Usable() {
				t.Fatalf("%s: %+v %+v", s.of.Name, l.Accepted, l.Resolved)
			}
			if l.Usable() == out[s.of.Name] || l.Programmed().OK == out[s.of.Name] {
				t.Fatalf("%s: %+v", s.of.Name, l.Programmed())
			}
		}
	}
	if out["small"] || out["first"] || !out["second"] {
		t.Errorf("left out are %v", out)
	}
	if plan, _ = p.pack([]*listenerSet{small, second}); plan.sets[0].leftOut() != nil || plan.sets[1].leftOut() != nil {
		t.Error("what fits again is left out")
	}
}

// K8S-23: listeners, Gateways and configurations share what a route was compiled to: with a copy for each port, a hundred routes of 8 kB with
// redirects would have 328 MiB.
func TestListenersShareRoutes(t *testing.T) {
	var listeners []string
	for i := range 64 {
		listeners = append(listeners, fmt.Sprintf("{name: l%d, port: %d, hostname: %q, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}", i, 8000+i, []string{"", "*.r.aa.test"}[i%2]))
	}
	g := parse[gateway](t, "{metadata: {name: edge, namespace: infra, uid: g}, spec: {listeners: ["+strings.Join(listeners, ", ")+"]}}")
	r := manyMatches(t, "aa", "r", 1, 64)
	cache := route.NewCache(func(slim.Key) bool { return true })
	c := objects{services: map[slim.Key]bool{{Namespace: "aa", Name: "v1"}: true}}
	compiled := cache.Compile(r, c.lookup)
	for range 2 { // Gateways
		p := &planner{cache: cache}
		plan := p.plan(g, nil, []*route.Route{r}, c.lookup)
		if len(plan.model.HTTP) != 64 || len(compiled.Routes) != 64 {
			t.Fatalf("%d listeners, %d routes", len(plan.model.HTTP), len(compiled.Routes))
		}
		for _, l := range plan.model.HTTP {
			if len(l.Routes) > 0 || len(l.Named) != 1 || len(l.Named[0].Hostnames) != 16 || &l.Named[0].Routes[0] != &compiled.Routes[0] {
				t.Errorf("port %d has routes of its own", l.Port)
			}
		}
	}
}
