// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"maps"
	"slices"
	"testing"

	"github.com/skep-operator/skep/cells/gateway/internal/route"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/metrics"
)

// tlsRouteStore is TLSRoutes, by their id.
type tlsRouteStore struct{ all map[slim.Key]*route.Route }

func (s *tlsRouteStore) by(routeKey, slim.Key) []*route.Route { return nil }
func (s *tlsRouteStore) ids() []slim.Key                      { return slices.Collect(maps.Keys(s.all)) }
func (s *tlsRouteStore) hidden() []slim.Key                   { return nil }
func (s *tlsRouteStore) at(key slim.Key) (*route.Route, bool) {
	r, exists := s.all[route.KeyOf(route.KindTLS, key)]
	return r, exists
}

// Of a route that went nothing is kept, also if that was not seen.
func TestCacheOfController(t *testing.T) {
	r := parse[route.TLS](t, "{metadata: {name: r, namespace: shop, uid: u}, spec: {rules: [{}]}}").Route()
	store := &tlsRouteStore{map[slim.Key]*route.Route{r.ID(): r}}
	c := &controller{refused: newRefusals(), agents: &envoyres.Fleet[duty]{}, servedRoutes: map[string]servedRoutes{}, states: map[slim.Key]*state{}, accepted: metrics.NewStates[slim.Key](nil)}
	c.cache = route.NewCache(c.hasRoute)
	c.setServed(route.KindTLS, servedRoutes{routeStore: store})
	compiled := func() *route.Compiled { return c.cache.Compile(r, objects{}.lookup) }
	was := compiled()
	step := func(what string, forgets bool) {
		t.Helper()
		if now := compiled(); (now != was) != forgets {
			t.Errorf("%s: it is compiled again: %t", what, now != was)
		}
		was = compiled()
	}
	step("nothing has changed", false)
	c.setServed(route.KindTLS, servedRoutes{routeStore: store})
	step("the same store", false)
	c.setServed(route.KindTLS, servedRoutes{routeStore: &tlsRouteStore{store.all}})
	step("another store", true)

	delete(store.all, r.ID())
	if result, err := c.reconcileRoute(t.Context(), r.ID(), route.KindTLS, r.Key()); err != nil || result.Reason != isGone {
		t.Fatalf("%+v, %v", result, err)
	}
	store.all[r.ID()] = r
	step("it went, and is there again", true)
	delete(store.all, r.ID())
	c.cache.Forget(r.ID())
	was = compiled()
	step("it went before it was compiled", true)

	g := parse[gateway](t, "{metadata: {name: edge, namespace: shop, uid: g}, spec: {listeners: []}}")
	s := c.state(g.Key())
	if s.planner.plan(g, nil, nil, objects{}.lookup); s.planner.cache != c.cache || c.parents(knownSets{}).cache != c.cache {
		t.Error("a planner or the statuses have another cache")
	}
}
