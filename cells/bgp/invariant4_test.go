// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package bgp

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// No router ID is given to two routers, over any history of crashes, stale caches, lost answers, deleted CiliumBGPNodeConfigs and
// overrides. The planner decides; the API server and the network are a model. Every step of a history is drawn from its seed.
func TestInvariant4NoDoubleRouterID(t *testing.T) {
	total := map[string]int{}
	for seed := range seedtest.Seeds(t, 400) {
		w := newRouterWorld(t, seed)
		if wrong := w.run(300); wrong != "" {
			t.Fatalf("SKEP_SEED=%d: %s", seed, wrong)
		}
		for what, n := range w.tally {
			total[what] += n
		}
	}
	t.Log(total)
	for _, what := range []string{"written", "lost answer", "late", "restart", "deleted by another", "refused", "full", "taken", "override"} {
		if total[what] == 0 {
			t.Errorf("the histories leave something out: %s", what)
		}
	}
}

// The model notices a planner that forgets what it sent.
func TestInvariant4ModelNotices(t *testing.T) {
	for seed := range uint64(2000) {
		w := newRouterWorld(t, seed)
		w.careless = true
		if wrong := w.run(300); wrong != "" {
			t.Logf("seed %d: %s", seed, wrong)
			return
		}
	}
	t.Error("not noticed")
}

// routerWorld is the API server, its clients, and the network between them.
type routerWorld struct {
	t        *testing.T
	r        *rand.Rand
	careless bool
	tally    map[string]int

	revision slim.Revision
	config   *clusterConfig
	nodes    map[string]bool
	stored   map[string]*nodeConfig
	changes  []func(*planner) // that the leader has not observed
	late     []func()         // writes whose answer was lost, and which may still arrive

	leader *planner
}

var worldNodes = []string{"n1", "n2", "n3", "n4"}

func newRouterWorld(t *testing.T, seed uint64) *routerWorld {
	w := &routerWorld{
		t: t, r: rand.New(rand.NewPCG(seed, 4)), tally: map[string]int{},
		nodes: map[string]bool{}, stored: map[string]*nodeConfig{}, config: decode[clusterConfig](t, rackConfig),
	}
	w.config.Spec.BGPInstances = []instance{{Name: slim.MakeString("a")}, {Name: slim.MakeString("b")}}
	w.restart()
	return w
}

// pool has room for three of the four nodes.
var worldPool = netip.MustParsePrefix("10.0.0.0/29")

// restart replaces the leader. The next one waits for what was sent, and sees all that was written.
func (w *routerWorld) restart() {
	for _, arrive := range w.late {
		arrive()
	}
	w.late, w.changes = nil, nil
	w.leader = newPlanner(newRouterIDs(worldPool))
	w.leader.setConfig(w.config)
	for name := range w.nodes {
		w.leader.setNode(name, slim.MakeLabels(map[string]string{"rack": "r1"}))
	}
	for _, n := range w.stored {
		w.leader.setNodeConfig(n)
	}
	w.leader.markSynced()
}

func (w *routerWorld) run(steps int) (wrong string) {
	for range steps {
		name := worldNodes[w.r.IntN(len(worldNodes))]
		switch w.r.IntN(10) {
		case 0:
			w.setNode(name, w.r.IntN(4) > 0)
		case 1:
			w.override(name)
		case 2:
			if w.stored[name] != nil && w.r.IntN(3) == 0 {
				w.tally["deleted by another"]++
				w.remove(name)
			}
		case 3:
			if w.r.IntN(10) == 0 {
				w.tally["restart"]++
				w.restart()
			}
		case 4:
			if len(w.late) > 0 {
				w.tally["late"]++
				w.late[0]()
				w.late = w.late[1:]
			}
		case 5, 6:
			for n := w.r.IntN(4); n > 0 && len(w.changes) > 0; n-- {
				w.changes[0](w.leader)
				w.changes = w.changes[1:]
			}
		default:
			w.reconcile(name)
		}
		if wrong := w.judge(); wrong != "" {
			return wrong
		}
	}
	return ""
}

func (w *routerWorld) setNode(name string, exists bool) {
	if w.nodes[name] = exists; !exists {
		delete(w.nodes, name)
	}
	w.changes = append(w.changes, func(p *planner) {
		if exists {
			p.setNode(name, slim.MakeLabels(map[string]string{"rack": "r1"}))
		} else {
			p.removeNode(name)
		}
	})
}

func (w *routerWorld) override(name string) {
	if w.r.IntN(2) == 0 {
		w.changes = append(w.changes, func(p *planner) { p.removeOverride(name) })
		return
	}
	w.tally["override"]++
	o := &override{}
	o.Name = name
	id := netip.AddrFrom4([4]byte{10, 0, 0, byte(w.r.IntN(10))}) // some are not of the pool
	o.Spec.BGPInstances = []instance{{Name: slim.MakeString("b"), RouterID: slim.MakeString(id.String())}}
	w.changes = append(w.changes, func(p *planner) { p.setOverride(o) })
}

func (w *routerWorld) remove(name string) {
	delete(w.stored, name)
	w.changes = append(w.changes, func(p *planner) { p.removeNodeConfig(name) })
}

// reconcile is one of a key, with the answer of the API server.
func (w *routerWorld) reconcile(name string) {
	p := w.leader
	a, err := p.decide(name)
	if err != nil {
		if _, taken := err.(*overrideError); taken {
			w.tally["taken"]++
		} else {
			w.tally["full"]++
		}
		return
	}
	switch a.verb {
	case remove:
		if is := w.stored[name]; is != nil && is.UID == a.current.UID {
			w.remove(name)
		}
	case create, update:
		w.send(p, name, a)
	}
}

func (w *routerWorld) send(p *planner, name string, a action) {
	if !w.careless {
		p.ids.begin(name)
	}
	store := func() (slim.Revision, bool) {
		is := w.stored[name]
		if a.verb == create && is != nil || a.verb == update && (is == nil || is.ResourceVersion != a.current.ResourceVersion) {
			return 0, false
		}
		w.revision++
		n := &nodeConfig{Spec: instances{a.routers}}
		n.Name, n.ResourceVersion, n.UID = name, w.revision, slim.ParseUID(fmt.Sprintf("00000000-0000-4000-8000-%012d", w.revision))
		if a.verb == update {
			n.UID = is.UID
		}
		n.Owners = []slim.OwnerReference{{Kind: slim.MakeString(clusterConfigs.Name()), Name: w.config.Name, UID: w.config.UID}}
		w.stored[name] = n
		w.changes = append(w.changes, func(p *planner) { p.setNodeConfig(n) })
		return n.ResourceVersion, true
	}
	end := func(revision slim.Revision, known bool) {
		if !w.careless {
			p.ids.end(name, revision, known)
		}
	}
	if w.r.IntN(6) == 0 {
		w.tally["lost answer"]++
		w.late = append(w.late, func() { store() })
		end(0, false)
		return
	}
	revision, ok := store()
	if ok {
		w.tally["written"]++
	} else {
		w.tally["refused"]++
	}
	end(revision, true)
}

// judge looks at what is stored.
func (w *routerWorld) judge() (wrong string) {
	of := map[string]string{}
	for _, name := range worldNodes {
		n := w.stored[name]
		if n == nil {
			continue
		}
		for _, router := range n.Spec.BGPInstances {
			id := router.RouterID.String()
			if by := of[id]; by != "" || id == "" {
				return fmt.Sprintf("%q is that of %s, and of %s of %s", id, by, router.Name, name)
			}
			of[id] = router.Name.String() + " of " + name
		}
	}
	return ""
}

// Number A13 of the contract's bgp.md; BGP-16: router IDs stay over restarts, move into a pool that was moved, and are lowest first; overrides come first.
func TestRouterIDs(t *testing.T) {
	w := newRouterWorld(t, 1)
	for _, name := range worldNodes {
		w.setNode(name, true)
	}
	w.reconcileAll()
	w.wantIDs("n1: 10.0.0.0 10.0.0.1", "n2: 10.0.0.2 10.0.0.3", "n3: 10.0.0.4 10.0.0.5", "n4: 10.0.0.6 10.0.0.7")
	w.restart()
	w.reconcileAll()
	w.wantIDs("n1: 10.0.0.0 10.0.0.1", "n2: 10.0.0.2 10.0.0.3", "n3: 10.0.0.4 10.0.0.5", "n4: 10.0.0.6 10.0.0.7")

	w.leader = newPlanner(newRouterIDs(netip.MustParsePrefix("10.0.0.4/30")))
	w.leader.setConfig(w.config)
	for name, n := range w.stored {
		w.leader.setNode(name, slim.MakeLabels(map[string]string{"rack": "r1"}))
		w.leader.setNodeConfig(n)
	}
	w.leader.markSynced()
	if _, err := w.leader.decide("n1"); err == nil || err.Error() != "no router ID for instance a of node n1: all 4 of --bgp-router-id-allocation-ip-pool are in use; make it larger" {
		t.Error(err)
	}
	w.leader.removeNode("n3")
	if keys := w.leader.removeNodeConfig("n3"); !slices.Contains(keys, "n1") {
		t.Errorf("a released router ID causes %v", keys)
	}
	if a, err := w.leader.decide("n1"); err != nil || a.routers[0].RouterID.String() != "10.0.0.4" || a.routers[1].RouterID.String() != "10.0.0.5" {
		t.Error(a, err)
	}
}

// reconcileAll reconciles until nothing changes.
func (w *routerWorld) reconcileAll() {
	for range 20 {
		for _, name := range worldNodes {
			for _, change := range w.changes {
				change(w.leader)
			}
			w.changes = nil
			a, err := w.leader.decide(name)
			if err != nil {
				w.t.Fatal(err)
			}
			if a.verb == create || a.verb == update {
				w.leader.ids.begin(name)
				w.revision++
				n := &nodeConfig{Spec: instances{a.routers}}
				n.Name, n.ResourceVersion = name, w.revision
				n.Owners = []slim.OwnerReference{{Kind: slim.MakeString(clusterConfigs.Name()), Name: w.config.Name, UID: w.config.UID}}
				w.stored[name] = n
				w.leader.ids.end(name, n.ResourceVersion, true)
				w.leader.setNodeConfig(n)
			}
		}
	}
}

func (w *routerWorld) wantIDs(want ...string) {
	w.t.Helper()
	var got []string
	for _, name := range worldNodes {
		text := name + ":"
		for _, router := range w.stored[name].Spec.BGPInstances {
			text += " " + router.RouterID.String()
		}
		got = append(got, text)
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("got %q, want %q", got, want)
	}
}

// BGP-17: two routers that show one router ID: the older one keeps it, and one that is released is held by the other.
func TestRouterIDShownTwice(t *testing.T) {
	p := newPlanner(newRouterIDs(worldPool))
	p.setConfig(decode[clusterConfig](t, rackConfig))
	for i, name := range []string{"n2", "n1"} {
		p.setNode(name, labelsOf(t, "{rack: r1}"))
		p.setNodeConfig(decode[nodeConfig](t, fmt.Sprintf("metadata: {name: %s, uid: 00000000-0000-4000-8000-00000000000%d, resourceVersion: \"5\", creationTimestamp: \"2026-01-0%dT00:00:00Z\", %s}\n"+
			"spec: {bgpInstances: [{name: main, routerID: 10.0.0.3}]}", name, i, 1+i, ownedBy("rack", rackUID))))
	}
	p.markSynced()
	a, err := p.decide("n1")
	if err != nil || a.routers[0].RouterID.String() != "10.0.0.0" {
		t.Errorf("the younger one gets %+v (%v)", a.routers, err)
	}
	a, err = p.decide("n2")
	if err != nil || a.routers[0].RouterID.String() != "10.0.0.3" {
		t.Errorf("the older one gets %+v (%v)", a.routers, err)
	}
	p.removeNode("n2")
	p.removeNodeConfig("n2")
	if by, held := p.ids.addresses.OwnerOf(netip.MustParseAddr("10.0.0.3")); !held || by.node != "n1" {
		t.Errorf("what n1 still shows is held by %v", by)
	}
}

// BGP-18: what cannot be decoded holds the addresses in it; nothing is allocated where that is not known.
func TestRouterIDsThatCannotBeDecoded(t *testing.T) {
	p := newPlanner(newRouterIDs(worldPool))
	p.setConfig(decode[clusterConfig](t, rackConfig))
	p.setNode("n1", labelsOf(t, "{rack: r1}"))
	const meta = "metadata: {name: odd, uid: 00000000-0000-4000-8000-000000000001, resourceVersion: \"5\"}\n"
	p.setNodeConfig(decode[nodeConfig](t, meta+`spec: {bgpInstances: {"main": {"routerID": "10.0.0.0", "more": ["10.0.0.1", 7]}}}`))
	p.markSynced()
	if a, err := p.decide("n1"); err != nil || a.routers[0].RouterID.String() != "10.0.0.2" {
		t.Errorf("%+v, %v", a.routers, err)
	}
	huge := make([]byte, 70<<10)
	for i := range huge {
		huge[i] = 'x'
	}
	p.setNode("n2", labelsOf(t, "{rack: r1}"))
	p.setNodeConfig(decode[nodeConfig](t, meta+`spec: {bgpInstances: "`+string(huge)+`"}`))
	if _, err := p.decide("n2"); err == nil || err.Error() != "no router ID for instance main of node n2: that of CiliumBGPNodeConfig odd cannot be decoded; repair or delete it" {
		t.Error(err)
	}
	if _, err := p.decide("n1"); err != nil {
		t.Errorf("the router ID that n1 has already: %v", err)
	}
	if keys := p.removeNodeConfig("odd"); !slices.Contains(keys, "n2") {
		t.Errorf("that it is gone causes %v", keys)
	}
	p.ids.setHidden("hidden")
	if _, err := p.decide("n2"); err == nil {
		t.Error("allocated although nothing of a CiliumBGPNodeConfig can be decoded")
	}
	p.ids.setHidden("")
	if _, err := p.decide("n2"); err != nil {
		t.Error(err)
	}
}

// BGP-17: an override does not get what another router has, and nothing is allocated that an override wants.
func TestRouterIDsOfOverrides(t *testing.T) {
	p := newPlanner(newRouterIDs(worldPool))
	p.setConfig(decode[clusterConfig](t, rackConfig))
	p.markSynced()
	for _, name := range []string{"n1", "n2"} {
		p.setNode(name, labelsOf(t, "{rack: r1}"))
	}
	wants := func(name, id string) *override {
		return decode[override](t, fmt.Sprintf("metadata: {name: %s, uid: 00000000-0000-4000-8000-000000000004, resourceVersion: \"4\"}\nspec: {bgpInstances: [{name: main, routerID: %s}]}", name, id))
	}
	p.setOverride(wants("n1", "10.0.0.0"))
	if a, err := p.decide("n2"); err != nil || a.routers[0].RouterID.String() != "10.0.0.1" {
		t.Errorf("%+v, %v", a.routers, err)
	}
	p.setOverride(wants("n1", "10.0.0.1"))
	if _, err := p.decide("n1"); err == nil || err.Error() != "CiliumBGPNodeConfigOverride n1: router ID 10.0.0.1 of instance main is that of instance main of node n2; choose another one" {
		t.Error(err)
	}
	p.removeNode("n2")
	if a, err := p.decide("n2"); err != nil || a.verb != leave {
		t.Error(a, err)
	}
	if a, err := p.decide("n1"); err != nil || a.routers[0].RouterID.String() != "10.0.0.1" {
		t.Errorf("%+v, %v", a.routers, err)
	}
	p.setOverride(wants("n1", "fd00::1"))
	if _, err := p.decide("n1"); err == nil {
		t.Error("an IPv6 address is taken for a router ID")
	}
	p.removeOverride("n1")
	if a, err := p.decide("n1"); err != nil || a.routers[0].RouterID.String() != "10.0.0.1" {
		t.Errorf("it loses what it has: %+v, %v", a.routers, err)
	}
}
