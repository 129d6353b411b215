// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"fmt"
	"maps"
	"math/rand/v2"
	gslices "slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/skep-operator/skep/cells/internal/termtest"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/api/v2alpha1"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// history is a cluster of which everything is in memory and every step is drawn:
// endpoints come, change and go; a leader sees that late, endpoints and slices each
// by their own time; its writes take effect late, or are not answered, or are lost;
// and leaders die.
type history struct {
	t    *testing.T
	seed uint64
	r    *rand.Rand
	log  []string

	byIdentity bool
	capacity   int
	foreign    bool // somebody else edits slices, too
	names      int

	truth    map[slim.Key]v2alpha1.CoreCiliumEndpoint
	lives    map[slim.Key]int // how often an endpoint of the name was made
	changes  []change         // of endpoints
	revision slim.Revision
	slices   map[string]shown
	writes   []slim.Revision // of slices; what a watch tells
	told     map[slim.Revision]sliceChange
	covered  map[slim.Key]bool // live endpoints that have been in a slice
	landed   int
	crashed  bool
	leader   *leader
}

type change struct {
	key  slim.Key
	says *v2alpha1.CoreCiliumEndpoint // nil: it is gone
}

type sliceChange struct {
	name string
	now  shown
	uid  slim.UID // of one that is gone
}

// leader is an operator: a plan, what it sees, and requests that are under way.
type leader struct {
	plan    *plan
	view    map[slim.Key]v2alpha1.CoreCiliumEndpoint
	seen    int // changes of endpoints
	shown   int // writes of slices
	sureAt  int // changes of endpoints that make it sure of what it sees
	ready   map[string]bool
	flights []*flight
}

type flight struct {
	order    order
	landed   bool
	ghost    bool // nobody waits for its answer
	uid      slim.UID
	revision slim.Revision
	err      error
}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{
		t: t, seed: seed, r: rand.New(rand.NewPCG(seed, 7)),
		truth: map[slim.Key]v2alpha1.CoreCiliumEndpoint{}, lives: map[slim.Key]int{},
		slices: map[string]shown{}, told: map[slim.Revision]sliceChange{}, covered: map[slim.Key]bool{},
	}
	h.byIdentity = h.r.IntN(2) == 0
	h.capacity = 1 + h.r.IntN(6)
	return h
}

func (h *history) failf(format string, args ...any) {
	h.t.Helper()
	for _, line := range h.log[max(0, len(h.log)-600):] {
		h.t.Log(line)
	}
	h.t.Fatalf("SKEP_SEED=%d: %s", h.seed, fmt.Sprintf(format, args...))
}

func (h *history) note(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

// elect lets a leader begin. What requests of earlier ones there were have taken
// effect or never will; all slices are seen, and endpoints as of so many changes ago.
func (h *history) elect(late int) {
	l := &leader{view: map[slim.Key]v2alpha1.CoreCiliumEndpoint{}, ready: map[string]bool{}}
	l.plan = newPlan(h.capacity, h.byIdentity, func() string { h.names++; return fmt.Sprint("ces-", h.names) })
	h.leader = l
	for _, name := range gslices.Sorted(maps.Keys(h.slices)) {
		l.plan.show(name, h.slices[name])
	}
	l.shown = len(h.writes)
	for range max(0, len(h.changes)-late) {
		l.see(h.changes)
	}
	l.plan.begin(l.says)
	l.sureAt = len(h.changes)
	l.collect()
	h.note("a leader begins, %d of %d changes seen, %d slices", l.seen, len(h.changes), len(h.slices))
}

func (l *leader) says(key slim.Key, _ int64) (v2alpha1.CoreCiliumEndpoint, bool) {
	e, ok := l.view[key]
	return e, ok
}

func (l *leader) collect() {
	for _, s := range l.plan.take() {
		l.ready[s.name] = true
	}
}

// see shows the leader the next change of an endpoint.
func (l *leader) see(changes []change) {
	c := changes[l.seen]
	l.seen++
	if c.says == nil {
		delete(l.view, c.key)
		l.plan.remove(c.key)
	} else {
		l.view[c.key] = *c.says
		l.plan.upsert(c.key, ciliumio.SliceEndpointOf(c.says), size(c.says))
	}
	l.collect()
}

// watch shows the leader the next change of a slice.
func (h *history) watch() {
	l := h.leader
	if l.shown == len(h.writes) {
		return
	}
	c := h.told[h.writes[l.shown]]
	l.shown++
	if c.now.exists() {
		l.plan.show(c.name, c.now)
	} else {
		l.plan.gone(c.name, c.uid)
	}
	l.collect()
}

// live makes something happen to an endpoint.
func (h *history) live() {
	key := slim.Key{Namespace: fmt.Sprint("ns", h.r.IntN(2)), Name: fmt.Sprint("e", h.r.IntN(14))}
	e, there := h.truth[key]
	switch {
	case there && h.r.IntN(3) == 0:
		delete(h.truth, key)
		delete(h.covered, key)
		h.changes = append(h.changes, change{key: key})
		h.note("%s goes", key)
		return
	case !there:
		h.lives[key]++
		e = v2alpha1.CoreCiliumEndpoint{
			Name: key.Name, IdentityID: int64(h.r.IntN(3)),
			Networking: &v2.EndpointNetworking{Addressing: []v2.AddressPair{{IPv4: "10.0.0.1"}}, NodeIP: fmt.Sprint("life-", h.lives[key])},
		}
	case h.r.IntN(2) == 0:
		e.IdentityID = int64(h.r.IntN(3))
	default:
		e.Encryption.Key++
	}
	h.truth[key] = e
	h.changes = append(h.changes, change{key, &e})
	h.note("%s is of identity %d, key %d, %s", key, e.IdentityID, e.Encryption.Key, e.Networking.NodeIP)
}

// send has the leader look at a slice that is ready.
func (h *history) send() {
	l := h.leader
	names := gslices.Sorted(maps.Keys(l.ready))
	names = gslices.DeleteFunc(names, func(name string) bool { // one worker at a time
		return gslices.ContainsFunc(l.flights, func(f *flight) bool { return !f.ghost && f.order.slice.name == name })
	})
	if len(names) == 0 {
		return
	}
	name := names[h.r.IntN(len(names))]
	delete(l.ready, name)
	o := l.plan.order(name, l.says)
	if o.slice == nil {
		return
	}
	l.plan.begins(o)
	if o.verb != nothing {
		h.note("%s of %s is sent: %v", verbs[o.verb], name, entryNames(o.will))
		l.flights = append(l.flights, &flight{order: o})
	}
}

var verbs = map[verb]string{create: "create", update: "update", remove: "delete"}

func entryNames(entries []ciliumio.SliceEndpoint) (names []string) {
	for _, e := range entries {
		names = append(names, fmt.Sprint(e.Name, ":", e.IdentityID))
	}
	return names
}

// land lets a request take effect on the server, if it does.
func (h *history) land(f *flight) {
	f.landed = true
	name := f.order.slice.name
	now := h.slices[name]
	gr := resource.GroupResource()
	switch {
	case f.order.verb == create && now.exists():
		f.err = apierrors.NewAlreadyExists(gr, name)
	case f.order.verb != create && !now.exists():
		f.err = apierrors.NewNotFound(gr, name)
	case f.order.verb != create && (now.uid != f.order.upon.uid || now.revision != f.order.upon.revision):
		f.err = apierrors.NewConflict(gr, name, nil)
	}
	if f.err != nil {
		h.note("%s of %s: %s", verbs[f.order.verb], name, apierrors.ReasonForError(f.err))
		return
	}
	h.landed++
	h.note("%s of %s has landed", verbs[f.order.verb], name)
	if f.order.verb == remove {
		h.store(name, shown{})
	} else {
		if !now.exists() {
			now.uid = slim.ParseUID(fmt.Sprint("uid-", h.revision))
		}
		now.namespace, now.endpoints = f.order.object.Namespace, f.order.will
		h.store(name, now)
		f.uid, f.revision = now.uid, h.revision
	}
	h.cover()
}

// store changes a slice on the server, and has watches told.
func (h *history) store(name string, now shown) {
	h.revision++
	c := sliceChange{name: name, uid: h.slices[name].uid}
	if now.exists() {
		now.revision = h.revision
		h.slices[name], c.now = now, now
	} else {
		delete(h.slices, name)
	}
	h.writes = append(h.writes, h.revision)
	h.told[h.revision] = c
}

// cover checks that no endpoint that lives has dropped out of all slices.
func (h *history) cover() {
	in := map[slim.Key]bool{}
	for _, s := range h.slices {
		for _, e := range s.endpoints {
			in[slim.Key{Namespace: s.namespace, Name: e.Name}] = true
		}
	}
	for key := range h.covered {
		if !in[key] && !h.foreign {
			h.failf("%s lives, was in a slice, and is in none any more", key)
		}
	}
	for name, s := range h.slices {
		if len(s.endpoints) > h.capacity && !h.foreign && !h.crashed {
			h.failf("%s has %d endpoints, at most %d are allowed", name, len(s.endpoints), h.capacity)
		}
		for _, e := range s.endpoints {
			key := slim.Key{Namespace: s.namespace, Name: e.Name}
			if says, lives := h.truth[key]; lives && h.ofThisLife(says, e) {
				h.covered[key] = true
			}
		}
	}
}

// ofThisLife reports whether what a slice says of an endpoint is of the one that
// lives, and not of an earlier one of its name.
func (h *history) ofThisLife(says v2alpha1.CoreCiliumEndpoint, entry ciliumio.SliceEndpoint) bool {
	for identity := range int64(3) {
		for key := range says.Encryption.Key + 1 {
			e := says
			e.IdentityID, e.Encryption.Key = identity, key
			if ciliumio.SumOf(&e) == entry.Sum {
				return true
			}
		}
	}
	return false
}

// answer tells the leader what came of a request, or that there is no answer. A
// request without an answer may still land later.
func (h *history) answer(f *flight, lose bool) {
	l := h.leader
	switch {
	case lose:
		h.note("%s of %s is not answered", verbs[f.order.verb], f.order.slice.name)
		f.ghost = true
		l.plan.failed(f.order, false)
		l.ready[f.order.slice.name] = true
	case f.err == nil || f.order.verb == remove && apierrors.IsNotFound(f.err):
		h.drop(f)
		l.plan.wrote(f.order, f.uid, f.revision)
	default:
		h.drop(f)
		l.plan.failed(f.order, refused(f.err))
		l.ready[f.order.slice.name] = true
		if outdated(f.err) {
			l.plan.read(f.order.slice.name, h.slices[f.order.slice.name])
		}
	}
	l.collect()
}

func (h *history) drop(f *flight) {
	h.leader.flights = gslices.DeleteFunc(h.leader.flights, func(other *flight) bool { return other == f })
}

// step makes one thing happen.
func (h *history) step() {
	l := h.leader
	switch k := h.r.IntN(12); {
	case k < 3:
		if l.seen < len(h.changes) {
			l.see(h.changes)
		}
		if l.seen >= l.sureAt && !l.plan.sure && h.r.IntN(3) == 0 {
			l.plan.makeSure()
			l.collect()
		}
	case k < 5:
		h.watch()
	case k < 8:
		h.send()
	case k == 8 && h.foreign:
		h.meddle()
	case len(l.flights) > 0:
		f := l.flights[h.r.IntN(len(l.flights))]
		switch {
		case !f.landed && h.r.IntN(12) == 0: // it never gets there
			h.land2(f)
		case !f.landed:
			h.land(f)
		case f.ghost:
			h.drop(f)
		default:
			h.answer(f, h.r.IntN(10) == 0)
		}
	}
}

// land2 leaves a request without an answer before it has landed; it may land
// later, or never.
func (h *history) land2(f *flight) {
	if f.ghost {
		h.drop(f)
		return
	}
	h.answer(f, true)
}

// meddle is somebody else who edits slices.
func (h *history) meddle() {
	names := gslices.Sorted(maps.Keys(h.slices))
	if len(names) == 0 || h.r.IntN(4) > 0 {
		return
	}
	name := names[h.r.IntN(len(names))]
	now := h.slices[name]
	now.endpoints = gslices.Clone(now.endpoints)
	h.note("somebody edits %s", name)
	switch h.r.IntN(5) {
	case 0:
		h.store(name, shown{})
		return
	case 1:
		now.namespace = "elsewhere"
	case 2:
		now.endpoints = append(now.endpoints, ciliumio.SliceEndpoint{Name: fmt.Sprint("e", h.r.IntN(20)), Sum: 1})
	case 3:
		now.endpoints = now.endpoints[:h.r.IntN(len(now.endpoints)+1)]
	default:
		h.names++
		name, now.uid = fmt.Sprint("foreign-", h.names), slim.ParseUID(fmt.Sprint("foreign-", h.names))
	}
	h.store(name, now)
}

// crash ends the leader. Its requests land before the next one looks, or never.
func (h *history) crash() {
	for _, f := range h.leader.flights {
		if !f.landed && h.r.IntN(2) == 0 {
			h.land(f)
		}
	}
	h.note("the leader is gone")
	h.crashed = true
	h.elect(h.r.IntN(12))
}

// converge lets everything arrive.
func (h *history) converge() {
	l := h.leader
	for range 10_000 {
		switch {
		case l.seen < len(h.changes):
			l.see(h.changes)
		case l.shown < len(h.writes):
			h.watch()
		case len(l.flights) > 0:
			f := l.flights[0]
			if !f.landed {
				h.land(f)
			}
			if f.ghost {
				h.drop(f)
			} else {
				h.answer(f, false)
			}
		case len(l.ready) > 0:
			h.send()
		case !l.plan.sure:
			l.plan.makeSure()
			l.collect()
		default:
			l.plan.audit(func(name string, _ slim.Revision) bool { return !h.slices[name].exists() })
			if l.collect(); len(l.ready) == 0 {
				return
			}
		}
	}
	h.failf("it does not come to rest")
}

// check compares the slices with what follows from the endpoints alone.
func (h *history) check() {
	want, got := map[string]uint64{}, map[string]uint64{}
	for key, e := range h.truth {
		want[key.String()] = ciliumio.SumOf(&e)
	}
	for name, s := range h.slices {
		if len(s.endpoints) == 0 || len(s.endpoints) > h.capacity {
			h.failf("%s has %d endpoints", name, len(s.endpoints))
		}
		for _, e := range s.endpoints {
			key := slim.Key{Namespace: s.namespace, Name: e.Name}.String()
			if _, twice := got[key]; twice {
				h.failf("%s is in two slices, or twice in one", key)
			}
			got[key] = e.Sum
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		h.failf("what slices have is not what endpoints say: %s", diff)
	}
	p := h.leader.plan
	doubts := 0 // requests that were lost, which may yet arrive for all that the leader knows
	for name, s := range p.slices {
		doubts += len(s.doubts)
		if s.queued || s.shown.revision != h.slices[name].revision {
			h.failf("%s: queued %t, known as of %d, is as of %d", name, s.queued, s.shown.revision, h.slices[name].revision)
		}
	}
	if len(p.strays) > 0 && doubts == 0 || len(p.slices) != len(h.slices) || p.endpoints.Len() != len(h.truth) {
		h.failf("the plan keeps %d strays, %d slices of %d, %d endpoints of %d", len(p.strays), len(p.slices), len(h.slices), p.endpoints.Len(), len(h.truth))
	}
	before := h.landed
	h.elect(0)
	h.converge()
	if h.landed != before {
		h.failf("a restart in a converged cluster writes %d times", h.landed-before)
	}
}

// run plays a history of so many changes of endpoints. The leader is gone after so
// many writes, if that is not negative, and sometimes else.
func (h *history) run(events, crashAt int, often bool) {
	h.elect(0)
	for range events {
		h.live()
		for range 3 + h.r.IntN(4) {
			before := h.landed
			h.step()
			if h.landed != before && h.landed == crashAt || often && h.r.IntN(150) == 0 {
				h.crash()
			}
		}
	}
	h.converge()
	h.check()
}

// A leader that dies after any of its writes leaves nothing behind that the next
// one does not mend, and no endpoint drops out of all slices while it lives.
func TestCrashAtEveryWrite(t *testing.T) {
	for _, byIdentity := range []bool{false, true} {
		t.Run(fmt.Sprint("by identity ", byIdentity), func(t *testing.T) {
			t.Parallel()
			play := func(crashAt int) int {
				h := newHistory(t, 42)
				h.byIdentity, h.capacity = byIdentity, 4
				h.run(1000, crashAt, false)
				return h.landed
			}
			writes := play(-1)
			if writes < 300 {
				t.Fatalf("only %d writes", writes)
			}
			stride := 1
			if testing.Short() {
				stride = 10
			}
			for i := 1; i <= writes; i += stride {
				play(i)
			}
			t.Logf("crashed after each of %d writes (every %d.)", writes, stride)
		})
	}
}

// The same with leaders that die at any time, over many histories.
func TestCrashesAtAnyTime(t *testing.T) {
	writes := 0
	for seed := range termtest.Seeds(t, 400) {
		h := newHistory(t, seed)
		h.run(120, -1, true)
		writes += h.landed
	}
	t.Logf("%d writes", writes)
}

// Whatever others do to slices, all is well in the end.
func TestForeignEdits(t *testing.T) {
	for seed := range termtest.Seeds(t, 400) {
		h := newHistory(t, seed)
		h.foreign = true
		h.run(120, -1, true)
	}
}

// Writes that are not answered, as many as there may be, are remembered once.
func TestRepeatedWritesAreOneDoubt(t *testing.T) {
	a, b := []ciliumio.SliceEndpoint{{Name: "a"}}, []ciliumio.SliceEndpoint{{Name: "b"}}
	s := &slice{}
	for range 1000 {
		s.doubt(a)
	}
	s.doubt(b)
	if len(s.doubts) != 2 || !s.mayShow("a") || !s.mayShow("b") {
		t.Errorf("%d doubts", len(s.doubts))
	}
	s.trust()
	s.trust()
	if len(s.doubts) != 1 || !s.mayShow("a") || s.mayShow("b") {
		t.Errorf("%d doubts after two were refused", len(s.doubts))
	}
}

// Rule 13: what somebody else has made goes when its endpoints are elsewhere, and not
// before that.
func TestForeignSliceGoesWhenItsEndpointsAreElsewhere(t *testing.T) {
	l := &leader{view: map[slim.Key]v2alpha1.CoreCiliumEndpoint{}}
	l.plan = newPlan(10, false, func() string { return "ours" })
	l.plan.begin(l.says)
	l.plan.makeSure()
	key := slim.Key{Namespace: "ns", Name: "e"}
	e := v2alpha1.CoreCiliumEndpoint{Name: key.Name, Networking: &v2.EndpointNetworking{NodeIP: "10.0.0.1"}}
	l.view[key] = e
	entry := ciliumio.SliceEndpointOf(&e)
	l.plan.upsert(key, entry, size(&e))
	l.plan.show("theirs", shown{slim.ParseUID("theirs"), 5, "ns", []ciliumio.SliceEndpoint{entry}})
	order := func(name string, want verb) order {
		t.Helper()
		o := l.plan.order(name, l.says)
		if o.verb != want {
			t.Fatalf("%q is to be done with the slice %s, want %q", verbs[o.verb], name, verbs[want])
		}
		l.plan.begins(o)
		return o
	}
	order("theirs", nothing)
	l.plan.wrote(order("ours", create), slim.ParseUID("ours"), 6)
	order("theirs", remove)
}
