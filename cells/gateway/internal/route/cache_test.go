// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package route

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// world is what a lookup answers from: the states of Services and of their policies by name, and what a ServiceImport is.
type world struct {
	services  map[string]Answer
	policies  map[string]Answer
	isGranted bool
	target    string
	asks      bool // all agents have servers asked
}

func (w *world) lookup(q Query) Answer {
	switch q.About {
	case AboutPort:
		return w.services[q.Key.Name]
	case AboutTLS:
		return w.policies[q.Key.Name]
	case AboutGrant:
		return Answer{Exists: w.isGranted}
	case AboutImport:
		return Answer{Exists: w.target != "", Target: slim.Key{Namespace: "infra", Name: w.target}}
	case AboutFleet:
		return Answer{Exists: w.asks}
	}
	return Answer{}
}

var (
	isServed   = Answer{Exists: true, OK: true}
	isInvalid  = Answer{Exists: true}
	withPolicy = func(name string) Answer {
		return Answer{Exists: true, OK: true, TLS: &envoy.UpstreamTLS{ServerName: name}}
	}
)

func newWorld() *world {
	return &world{services: map[string]Answer{"a": isServed, "b": isServed}, policies: map[string]Answer{}}
}

// counted is a route that counts how often it is compiled.
func counted(r *Route, n *atomic.Int64) *Route {
	compile := r.compile
	r.compile = func(c *compiler) {
		n.Add(1)
		compile(c)
	}
	return r
}

func newTestCache() *Cache { return NewCache(func(slim.Key) bool { return true }) }

// A route is compiled once for a configuration and for statuses, and again when something of it changes.
func TestCacheCompilesOnce(t *testing.T) {
	const text = "{metadata: {name: r, namespace: infra, uid: UID, generation: NUMBER}, spec: {rules: [{backendRefs: [{name: a, port: 80}, {name: b, port: 80}]}]}}"
	var n atomic.Int64
	routeOf := func(uid string, generation int) *Route {
		return counted(parse[HTTP](t, strings.NewReplacer("UID", uid, "NUMBER", fmt.Sprint(generation)).Replace(text)).Route(), &n)
	}
	c, w, r := newTestCache(), newWorld(), routeOf("first", 1)
	configuration := func() { c.Compile(r, w.lookup) }
	status := func() { c.Dropped(r, w.lookup) }
	step := func(what string, want int64, first, second func()) {
		t.Helper()
		before := n.Load()
		for range 3 {
			first()
			second()
		}
		if got := n.Load() - before; got != want {
			t.Errorf("%s: it is compiled %d times, not %d", what, got, want)
		}
	}
	step("a new route", 1, configuration, status)
	r = routeOf("first", 2)
	step("another generation", 1, configuration, status)
	r = routeOf("first", 3)
	step("another generation, the status first", 1, status, configuration)
	r = routeOf("second", 3)
	step("another uid", 1, configuration, status)
	w.services["b"] = Answer{}
	step("an answer for both", 1, configuration, status)
	w.services["b"] = isServed
	step("an answer for both, the status first", 1, status, configuration)
	w.policies["b"] = withPolicy("b")
	step("a policy, for the status", 0, status, status)
	step("a policy", 1, configuration, status)
	w.policies["b"] = isInvalid
	step("a policy that is not valid, for the status", 0, status, status)
	step("a policy that is not valid", 1, configuration, status)
	w.services["a"] = Answer{}
	step("an answer for both under a policy", 2, status, configuration)
	w.services["a"] = isServed
	step("an answer for both under a policy that is not valid", 2, configuration, status)
	w.policies["b"] = Answer{}
	step("no policy", 1, configuration, status)
	w.policies["c"] = isInvalid
	step("a policy of another Service", 0, configuration, status)

	c.Forget(r.ID())
	if len(c.kept) > 0 {
		t.Errorf("%d routes are kept", len(c.kept))
	}
	step("a route that was forgotten", 1, configuration, status)
	c = NewCache(func(slim.Key) bool { return false })
	if configuration(); len(c.kept) > 0 {
		t.Error("a route that went meanwhile is kept")
	}
	c = nil
	step("without a cache", 6, configuration, status)
	c.Forget(r.ID())
}

// cachedTexts are rules of routes of which answers decide what else is asked, and whether they are left out.
var cachedTexts = []struct {
	of    func(testing.TB, string) *Route
	rules string
}{
	{ofHTTP, `filters: [{type: ExternalAuth, externalAuth: {protocol: HTTP, http: {path: "a b"}, backendRef: {name: b, port: 80}}}], backendRefs: [{name: a, port: 80}]`},
	{ofHTTP, `backendRefs: [{name: a, port: 80}, {name: b, port: 80, filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: Host, value: x}]}}]}]`},
	{ofHTTP, `backendRefs: [{name: a, port: 80, weight: 2147483647}, {name: b, port: 80, weight: 2147483647}, {name: b, port: 81, weight: 2147483647}]`},
	{ofHTTP, `backendRefs: [{group: multicluster.x-k8s.io, kind: ServiceImport, namespace: infra, name: i, port: 80}, {name: a, namespace: infra, port: 80}]`},
	{ofGRPC, `filters: [{type: RequestMirror, requestMirror: {backendRef: {name: b, port: 80}}}], backendRefs: [{name: a, port: 80}]`},
	{ofTLS, `backendRefs: [{name: a, port: 80}]}, {backendRefs: [{name: b, port: 80}]`},
	{ofTCP, `backendRefs: [{name: a, port: 81}, {name: b, port: 80}]`},
}

func ofHTTP(t testing.TB, text string) *Route { return parse[HTTP](t, text).Route() }
func ofGRPC(t testing.TB, text string) *Route { return parse[GRPC](t, text).Route() }
func ofTLS(t testing.TB, text string) *Route  { return parse[TLS](t, text).Route() }
func ofTCP(t testing.TB, text string) *Route  { return parse[TCP](t, text).Route() }

func cachedRoutes(t testing.TB) (all []*Route) {
	for i, text := range cachedTexts {
		all = append(all, text.of(t, fmt.Sprintf("{metadata: {name: r%d, namespace: shop, uid: u}, spec: {rules: [{%s}]}}", i, text.rules)))
	}
	return all
}

// change changes something that is asked.
func (w *world) change(r *rand.Rand) {
	pick := func(all ...Answer) Answer { return all[r.IntN(len(all))] }
	name := []string{"a", "b"}[r.IntN(2)]
	switch r.IntN(5) {
	case 0:
		w.services[name] = pick(Answer{}, Answer{Exists: true}, isServed, isServed)
	case 1:
		w.policies[name] = pick(Answer{}, isInvalid, withPolicy("x"), withPolicy("y"))
	case 2:
		w.isGranted = !w.isGranted
	case 3:
		w.target = []string{"", "a", "b"}[r.IntN(3)]
	default:
		w.asks = !w.asks
	}
}

// checkCached compares what a cache returns with what is compiled for it alone, and what both have asked.
func checkCached(c *Cache, r *Route, lookup Lookup) error {
	compare := func(what string, direct, cached any, asked, again Answers) error {
		if diff := cmp.Diff(direct, cached, cmp.AllowUnexported(DroppedRules{})); diff != "" {
			return fmt.Errorf("%s of %s: %s", what, r.ID(), diff)
		}
		if !maps.EqualFunc(asked, again, Answer.equal) {
			return fmt.Errorf("%s of %s: asked is %v, not %v", what, r.ID(), again, asked)
		}
		return nil
	}
	asked, again := Answers{}, Answers{}
	direct := Compile(r, lookup.Record(asked))
	if err := compare("the configuration", direct, c.Compile(r, lookup.Record(again)), asked, again); err != nil {
		return err
	}
	asked, again = Answers{}, Answers{}
	without := Compile(r, lookup.Record(asked).WithoutPolicies()).DroppedRules
	return compare("the status", without, c.Dropped(r, lookup.Record(again)), asked, again)
}

// Whatever changes, and whichever use asks first, a cache is not seen, neither in what it returns nor in what is asked.
func TestCacheIsNotSeen(t *testing.T) {
	random := rand.New(rand.NewPCG(seedtest.Seed(t), 0))
	c, w, routes := newTestCache(), newWorld(), cachedRoutes(t)
	steps := 2_000
	if seedtest.Soak() {
		steps = 100_000
	}
	differ := 0
	for n := range steps {
		w.change(random)
		r := routes[random.IntN(len(routes))]
		switch random.IntN(4) {
		case 0:
			c.Dropped(r, w.lookup)
		case 1:
			c.Forget(r.ID())
		case 2:
			r.Generation++
		}
		if err := checkCached(c, r, w.lookup); err != nil {
			t.Fatalf("step %d: %v", n, err)
		}
		if len(c.Compile(r, w.lookup).Dropped) != len(c.Dropped(r, w.lookup).Dropped) {
			differ++
		}
	}
	if differ == 0 {
		t.Error("no policy has changed what is left out: there is nothing to tell apart")
	}
}

// Workers share a cache, and ask it while they answer. What they get is by their own answers.
func TestCacheIsShared(t *testing.T) {
	c, routes := newTestCache(), cachedRoutes(t)
	var wg sync.WaitGroup
	for worker := range 4 {
		random := rand.New(rand.NewPCG(uint64(worker), 0))
		w := newWorld()
		lookup := func(q Query) Answer {
			c.Forget(slim.Key{Name: "other"})
			return w.lookup(q)
		}
		wg.Go(func() {
			for range 300 {
				w.change(random)
				for _, r := range routes {
					if err := checkCached(c, r, lookup); err != nil {
						t.Error(err)
						return
					}
				}
				if random.IntN(10) == 0 {
					c.Forget(routes[random.IntN(len(routes))].ID())
				}
			}
		})
	}
	wg.Wait()
}
