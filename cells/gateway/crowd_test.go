// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/skep-operator/skep/cells/gateway/internal/condition"
	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// crowdedSets are ListenerSets with 64 ports each, and the references of a route to all of them.
func crowdedSets(t *testing.T, namespace string, n int) (sets []*listenerSet, refs string) {
	t.Helper()
	var all []string
	for i := range n {
		var listeners []string
		for port := range 64 {
			listeners = append(listeners, fmt.Sprintf("{name: l%d, port: %d, protocol: HTTP}", port, 1000+64*i+port))
		}
		name := fmt.Sprint("set", i)
		sets = append(sets, setOf(t, name, namespace, i, "["+strings.Join(listeners, ", ")+"]"))
		all = append(all, fmt.Sprintf("{kind: ListenerSet, name: %s}", name))
	}
	return sets, strings.Join(all, ", ")
}

func crowdedRoute(t *testing.T, namespace string, i int, refs string) *route.Route {
	t.Helper()
	var hosts []string
	for h := range 16 {
		hosts = append(hosts, fmt.Sprintf("h%d.r%d.%s.test", h, i, namespace))
	}
	return parse[route.HTTP](t, fmt.Sprintf(
		"{metadata: {name: r%d, namespace: %s, uid: r%d, generation: 1, creationTimestamp: \"2026-01-01T00:00:%02dZ\"}, spec: {parentRefs: [%s], hostnames: [%s], rules: [{backendRefs: [{name: v1, port: 80}]}]}}",
		i, namespace, i, i, refs, strings.Join(hosts, ", "))).Route()
}

// GW-54; K3 of the contract's tenants.md: 32 ListenerSets and 60 routes for all of their listeners, two million places of host names, are planned in
// little memory. The youngest of them are not attached; the route of another namespace is served.
func TestCrowd(t *testing.T) {
	g := edgeOf(t, "{from: All}", "[{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}]")
	c := objects{services: map[slim.Key]bool{{Namespace: "aa", Name: "v1"}: true, {Namespace: "bb", Name: "v1"}: true}}
	sets, refs := crowdedSets(t, "bb", 32)
	other := crowdedRoute(t, "aa", 59, "{name: edge, namespace: infra}")
	all := []*route.Route{other}
	for i := range 60 {
		all = append(all, crowdedRoute(t, "bb", i, refs))
	}
	p := new(planner)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	plan := p.plan(g, sets, all, c.lookup)
	runtime.ReadMemStats(&after)
	if kib := (after.TotalAlloc - before.TotalAlloc) >> 10; kib > 96<<10 {
		t.Errorf("planning needed %d KiB", kib)
	}
	const places = 32 * 64 * 16 // of a route of bb
	kept := (envoy.MostPlaces - 16) / places
	for i, r := range all[1:] {
		why, out := plan.crowd[r.ID()]
		if out != (i >= kept) || out && (why.OK || why.Reason != leftOut || !strings.Contains(why.Message, fmt.Sprint(places))) {
			t.Errorf("%s: %t %+v", r.ID(), out, why)
		}
	}
	if n := plan.attached[plan.own[0]]; n != 1 || plan.attached[plan.sets[0].listeners[0]] != int32(kept) {
		t.Errorf("%d and %d routes are attached", n, plan.attached[plan.sets[0].listeners[0]])
	}
	at := p.routes[all[1].ID()].at
	if len(at) != 32*64 || &at[0].Names[0] != &at[63].Names[0] {
		t.Errorf("of %d listeners each has host names of its own", len(at))
	}

	if again := p.plan(g, sets, all, c.lookup); again.assembly != plan.assembly {
		t.Error("the same is planned anew")
	}
	if fewer := p.plan(g, sets, all[:kept+2], c.lookup); len(fewer.crowd) != 1 {
		t.Errorf("with one route more than there may be %d are out", len(fewer.crowd))
	}
	fits := p.plan(g, sets, all[:kept+1], c.lookup)
	if len(fits.crowd) != 0 {
		t.Errorf("of those that fit %d are out", len(fits.crowd))
	}
	last := all[kept+1]
	if few := p.plan(g, sets[:1], append(all[:1:1], last), c.lookup); len(few.crowd) != 0 || few.attached[few.sets[0].listeners[0]] != 1 {
		t.Errorf("with fewer listeners %d are out", len(few.crowd))
	}
}

// A route that does not fit is refused at all listeners, whichever its status asks about; that is news for its status, and so is its end.
func TestCrowdIsRefused(t *testing.T) {
	s, g := newRefusals(), slim.Key{Namespace: "infra", Name: "edge"}
	r, set := route.KeyOf(route.KindHTTP, slim.Key{Namespace: "bb", Name: "r"}), route.KeyOf(route.KindListenerSet, slim.Key{Namespace: "bb", Name: "s"})
	why := tooManyPlaces(7, 6)
	s.set(g, map[refusedAt]condition.Condition{{route: r}: why})
	if got, refused, planned := s.at(g, refusedAt{r, set, "l1"}); !refused || !planned || got != why || !s.queue[r] {
		t.Errorf("%+v %t %t", got, refused, planned)
	}
	if _, refused, _ := s.at(g, refusedAt{route.KeyOf(route.KindHTTP, slim.Key{Namespace: "bb", Name: "other"}), set, "l1"}); refused {
		t.Error("another route is refused, too")
	}
	clear(s.queue)
	s.set(g, nil)
	if _, refused, _ := s.at(g, refusedAt{r, set, "l1"}); refused || !s.queue[r] {
		t.Error("it is refused still")
	}
}

// GW-54, GW-64: the hosts of a route with too many places are those of no younger route of another namespace, at the listeners that it names. Older ones, and those
// of its namespace, go on to have them.
func TestHostsOfCrowdAreClosed(t *testing.T) {
	g := edgeOf(t, "{from: All}", `[{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}},
		{name: named, port: 81, hostname: "*.b.test", protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}, {name: other, port: 82, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}]`)
	c := objects{services: map[slim.Key]bool{{Namespace: "aa", Name: "v1"}: true, {Namespace: "bb", Name: "v1"}: true}}
	one := func(namespace, name, section, hosts string, second int) *route.Route {
		return parse[route.HTTP](t, fmt.Sprintf(
			"{metadata: {name: %s, namespace: %s, uid: %s-%s, generation: 1, creationTimestamp: \"2026-01-01T00:00:%02dZ\"}, spec: {parentRefs: [%s], hostnames: %s, rules: [{backendRefs: [{name: v1, port: 80}]}]}}",
			name, namespace, namespace, name, second, section, hosts)).Route()
	}
	const all, other = "{name: edge, namespace: infra, sectionName: http}, {name: edge, namespace: infra, sectionName: named}", "{name: edge, namespace: infra, sectionName: other}"
	const http, named = "{name: edge, namespace: infra, sectionName: http}", "{name: edge, namespace: infra, sectionName: named}"
	crowded := one("bb", "crowd", all, `["*.test", a.test, b.test, c.test, d.test, e.test]`, 20)
	served := map[*route.Route]bool{
		one("aa", "older", http, `["a.test"]`, 10):       true,
		one("aa", "younger", http, `["a.test"]`, 30):     false,
		one("aa", "wildcard", http, `["*.test"]`, 30):    false,
		one("aa", "deeper", http, `["x.test"]`, 30):      true,
		one("aa", "hostname", named, `["*.b.test"]`, 30): false, // which *.test of the crowd is there
		one("aa", "below", named, `["y.b.test"]`, 30):    true,
		one("aa", "elsewhere", other, `["a.test"]`, 30):  true,
		one("bb", "own", http, `["a.test"]`, 40):         true,
	}
	routes := []*route.Route{crowded}
	for r := range served {
		routes = append(routes, r)
	}
	for _, joins := range []bool{false, true} {
		p := &planner{most: 12, joins: joins}
		plan := p.plan(g, nil, routes, c.lookup)
		if len(plan.crowd) != 1 || plan.crowd[crowded.ID()].OK {
			t.Fatalf("%v are the crowd", plan.crowd)
		}
		for r, want := range served {
			refused := plan.refused[r.ID()]
			if (len(refused) == 0) != (want || joins) {
				t.Errorf("joined %t: %s: %v", joins, r.ID(), refused)
			}
			for _, why := range refused {
				if why.Reason != "HostnameConflict" || why.By != crowded {
					t.Errorf("%s: %+v", r.ID(), why)
				}
			}
		}
	}
}
