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

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/api/v2alpha1"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/seedtest"
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
	foreign    bool // another writer edits slices, too
	names      int

	truth    map[slim.Key]v2alpha1.CoreCiliumEndpoint
	lives    map[slim.Key]int // how often an endpoint of the name was made
	changes  []change         // of endpoints
	revision slim.Revision
	slices   map[string]stored
	held     map[string]bool // by a finalizer of others
	writes   []slim.Revision // of slices; what a watch tells
	told     map[slim.Revision]sliceChange
	covered  map[slim.Key]bool // live endpoints that have been in a slice
	spoilt   map[slim.Key]bool // endpoints that cannot be decoded
	broken   map[string]bool   // slices that cannot be decoded
	landed   int
	crashed  bool
	leader   *leader
}

type change struct {
	key  slim.Key
	says *v2alpha1.CoreCiliumEndpoint // nil: it is gone, or cannot be decoded
	held bool                         // it cannot be decoded
}

type sliceChange struct {
	name string
	now  stored
	uid  slim.UID // of one that is gone
	held bool     // it cannot be decoded
}

// leader is an operator: a plan, what it sees, and requests that are under way.
type leader struct {
	plan    *planner
	view    map[slim.Key]v2alpha1.CoreCiliumEndpoint
	spoilt  map[slim.Key]bool
	seen    int // changes of endpoints
	shown   int // writes of slices
	sureAt  int // changes of endpoints that make it sure of what it sees
	ready   map[string]bool
	flights []*flight
}

type flight struct {
	order    writeOp
	landed   bool
	ghost    bool // its response is not awaited
	uid      slim.UID
	revision slim.Revision
	err      error
}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{
		t: t, seed: seed, r: rand.New(rand.NewPCG(seed, 7)),
		truth: map[slim.Key]v2alpha1.CoreCiliumEndpoint{}, lives: map[slim.Key]int{},
		spoilt: map[slim.Key]bool{}, broken: map[string]bool{}, held: map[string]bool{},
		slices: map[string]stored{}, told: map[slim.Revision]sliceChange{}, covered: map[slim.Key]bool{},
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
	l := &leader{view: map[slim.Key]v2alpha1.CoreCiliumEndpoint{}, spoilt: map[slim.Key]bool{}, ready: map[string]bool{}}
	l.plan = newPlanner(h.capacity, h.byIdentity, func() string { h.names++; return fmt.Sprint("ces-", h.names) })
	l.plan.undecodable = func(key slim.Key) bool { return l.spoilt[key] }
	h.leader = l
	for _, name := range gslices.Sorted(maps.Keys(h.slices)) {
		if h.broken[name] {
			l.plan.markUndecodable(name)
		} else {
			l.plan.observe(name, h.slices[name])
		}
	}
	l.shown = len(h.writes)
	for range max(0, len(h.changes)-late) {
		l.see(h.changes)
	}
	l.plan.bootstrap(l.says)
	l.sureAt = len(h.changes)
	l.collect()
	h.note("a leader begins, %d of %d changes seen, %d slices", l.seen, len(h.changes), len(h.slices))
}

func (l *leader) says(key slim.Key, _ int64) (v2alpha1.CoreCiliumEndpoint, bool) {
	e, ok := l.view[key]
	return e, ok
}

func (l *leader) collect() {
	for _, s := range l.plan.drain() {
		l.ready[s.name] = true
	}
}

// see shows the leader the next change of an endpoint.
func (l *leader) see(changes []change) {
	c := changes[l.seen]
	l.seen++
	delete(l.spoilt, c.key)
	switch {
	case c.held:
		delete(l.view, c.key)
		l.spoilt[c.key] = true
		l.plan.freeze(c.key)
	case c.says == nil:
		delete(l.view, c.key)
		l.plan.remove(c.key)
	default:
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
	switch {
	case c.held:
		l.plan.markUndecodable(c.name)
	case c.now.exists():
		l.plan.observe(c.name, c.now)
	default:
		l.plan.recordDeleted(c.name, c.uid)
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
		delete(h.spoilt, key)
		h.changes = append(h.changes, change{key: key})
		h.note("%s goes", key)
		return
	case there && h.r.IntN(5) == 0:
		h.spoilt[key] = true
		h.changes = append(h.changes, change{key: key, held: true})
		h.note("%s cannot be decoded", key)
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
	delete(h.spoilt, key)
	h.changes = append(h.changes, change{key: key, says: &e})
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
	o := l.plan.nextOp(name, l.says)
	if o.slice == nil {
		return
	}
	l.plan.recordStart(o)
	if o.kind != opNone {
		h.note("%s of %s is sent: %v", verbs[o.kind], name, entryNames(o.after))
		l.flights = append(l.flights, &flight{order: o})
	}
}

var verbs = map[opKind]string{opCreate: "create", opUpdate: "update", opDelete: "delete"}

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
	case f.order.kind == opCreate && now.exists():
		f.err = apierrors.NewAlreadyExists(gr, name)
	case f.order.kind != opCreate && !now.exists():
		f.err = apierrors.NewNotFound(gr, name)
	case f.order.kind != opCreate && (now.uid != f.order.base.uid || now.revision != f.order.base.revision):
		f.err = apierrors.NewConflict(gr, name, nil)
	}
	if f.err != nil {
		h.note("%s of %s: %s", verbs[f.order.kind], name, apierrors.ReasonForError(f.err))
		return
	}
	if h.broken[name] {
		h.failf("%s of %s, which cannot be decoded", verbs[f.order.kind], name)
	}
	h.landed++
	h.note("%s of %s has landed", verbs[f.order.kind], name)
	if f.order.kind == opDelete {
		if now.terminating {
			h.failf("%s is deleted again while it waits for its finalizers", name)
		}
		h.delete(name)
	} else {
		if !now.exists() {
			now.uid = slim.ParseUID(fmt.Sprint("uid-", h.revision))
		}
		for _, entry := range f.order.after { // what is copied is there to be copied
			if gslices.Contains(f.order.copies, entry.Name) && !gslices.Contains(now.endpoints, entry) {
				h.failf("%s of %s copies %s, which is not there", verbs[f.order.kind], name, entry.Name)
			}
		}
		now.namespace, now.endpoints = f.order.object.Namespace, f.order.after
		h.store(name, now)
		f.uid, f.revision = now.uid, h.revision
	}
	h.cover()
}

// delete deletes a slice, or has it wait for its finalizer.
func (h *history) delete(name string) {
	now := h.slices[name]
	switch {
	case !h.held[name]:
		h.store(name, stored{})
	case !now.terminating:
		now.terminating = true
		h.store(name, now)
	}
}

// release takes a finalizer off.
func (h *history) release(name string) {
	if delete(h.held, name); h.slices[name].terminating {
		h.note("%s has no finalizer any more", name)
		delete(h.broken, name)
		h.store(name, stored{})
	}
}

// store changes a slice on the server, and has watches told.
func (h *history) store(name string, now stored) {
	h.revision++
	c := sliceChange{name: name, uid: h.slices[name].uid, held: h.broken[name]}
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
		h.note("%s of %s is not answered", verbs[f.order.kind], f.order.slice.name)
		f.ghost = true
		l.plan.recordFailure(f.order, false)
		l.ready[f.order.slice.name] = true
	case f.err == nil || f.order.kind == opDelete && k8s.IsNotFound(f.err, refOf(f.order.slice.name)):
		h.drop(f)
		l.plan.recordWrite(f.order, f.uid, f.revision)
	default:
		h.drop(f)
		l.plan.recordFailure(f.order, k8s.Refused(f.err))
		l.ready[f.order.slice.name] = true
		if isStale(f.err, refOf(f.order.slice.name)) && !h.broken[f.order.slice.name] {
			l.plan.recordRefetch(f.order.slice.name, h.slices[f.order.slice.name])
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
		if l.seen >= l.sureAt && !l.plan.confirmed && h.r.IntN(3) == 0 {
			l.plan.confirm()
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

// meddle edits slices as another writer.
func (h *history) meddle() {
	names := gslices.Sorted(maps.Keys(h.slices))
	if len(names) == 0 || h.r.IntN(4) > 0 {
		return
	}
	name := names[h.r.IntN(len(names))]
	now := h.slices[name]
	now.endpoints = gslices.Clone(now.endpoints)
	h.note("somebody edits %s", name)
	k := h.r.IntN(8)
	if k < 5 {
		delete(h.broken, name)
	}
	switch k {
	case 0:
		h.delete(name)
		return
	case 5:
		h.held[name] = true
	case 6:
		h.release(name)
		return
	case 1:
		now.namespace = "elsewhere"
	case 2:
		now.endpoints = append(now.endpoints, ciliumio.SliceEndpoint{Name: fmt.Sprint("e", h.r.IntN(20)), Sum: 1})
	case 3:
		now.endpoints = now.endpoints[:h.r.IntN(len(now.endpoints)+1)]
	case 4:
		h.broken[name] = true
	default:
		h.names++
		name, now.uid = fmt.Sprint("foreign-", h.names), slim.ParseUID(fmt.Sprint("foreign-", h.names))
		now.terminating = false
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
		case !l.plan.confirmed:
			l.plan.confirm()
			l.collect()
		default:
			l.plan.detectDeleted(func(name string, _ slim.Revision) bool { return !h.slices[name].exists() })
			for key := range l.spoilt {
				l.plan.freeze(key)
			}
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
		if known := h.leader.plan.slices[name]; h.broken[name] || len(known.deleteAfter) > 0 {
			continue // it waits for endpoints that cannot be decoded
		}
		held := 0 // which others may have put there
		for _, e := range s.endpoints {
			if h.spoilt[slim.Key{Namespace: s.namespace, Name: e.Name}] {
				held++
			}
		}
		if n := len(s.endpoints); n == 0 || n-held > h.capacity || n > h.capacity && !h.foreign {
			h.failf("%s has %d endpoints", name, n)
		}
		for _, e := range s.endpoints {
			if h.spoilt[slim.Key{Namespace: s.namespace, Name: e.Name}] {
				continue // it stays
			}
			key := slim.Key{Namespace: s.namespace, Name: e.Name}.String()
			if _, twice := got[key]; twice {
				h.failf("%s is in two slices, or twice in one", key)
			}
			got[key] = e.Sum
		}
	}
	held := 0
	for key := range h.spoilt {
		if delete(want, key.String()); h.leader.plan.sliceOf(key) == nil {
			held++
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		h.failf("what slices have is not what endpoints say: %s", diff)
	}
	p := h.leader.plan
	doubts, made := 0, 0 // requests that were lost, which may yet arrive for all that the leader knows; slices
	for name, s := range p.slices {
		doubts += len(s.unacked)
		if s.stored.exists() { // else its endpoints cannot be decoded
			made++
		}
		if s.queued || s.stored.revision != h.slices[name].revision {
			h.failf("%s: queued %t, known as of %d, is as of %d", name, s.queued, s.stored.revision, h.slices[name].revision)
		}
	}
	misplaced := 0
	for key, in := range p.misplaced {
		if !h.spoilt[key] && gslices.ContainsFunc(in, func(s *slice) bool { return len(s.deleteAfter) == 0 }) {
			misplaced++
		}
	}
	if misplaced > 0 && doubts == 0 || made != len(h.slices)-len(h.broken) || p.endpoints.Len() > len(h.truth) || p.endpoints.Len() < len(h.truth)-held {
		h.failf("the planner keeps %d misplaced, %d slices of %d, %d endpoints of %d", misplaced, made, len(h.slices)-len(h.broken), p.endpoints.Len(), len(h.truth))
	}
	waits := gslices.ContainsFunc(gslices.Collect(maps.Values(p.slices)), func(s *slice) bool { return len(s.deleteAfter) > 0 })
	before := h.landed
	h.elect(0)
	h.converge()
	// A slice that waits for endpoints that cannot be decoded may be of use again.
	if h.landed != before && !waits && (!h.foreign || len(h.spoilt) == 0) {
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
	for _, name := range gslices.Sorted(maps.Keys(h.held)) {
		h.release(name)
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
			if testing.Short() || seedtest.RaceEnabled && !seedtest.Soak() {
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
	for seed := range seedtest.Seeds(t, 400) {
		h := newHistory(t, seed)
		h.run(120, -1, true)
		writes += h.landed
	}
	t.Logf("%d writes", writes)
}

// Whatever others do to slices, all is well in the end.
func TestForeignEdits(t *testing.T) {
	for seed := range seedtest.Seeds(t, 400) {
		h := newHistory(t, seed)
		h.foreign = true
		h.run(120, -1, true)
	}
}

// Writes that are not answered, as many as there may be, are remembered once.
func TestRepeatedWritesAreOneUnackedWrite(t *testing.T) {
	a, b := []ciliumio.SliceEndpoint{{Name: "a"}}, []ciliumio.SliceEndpoint{{Name: "b"}}
	s := &slice{}
	for range 1000 {
		s.addUnacked(a)
	}
	s.addUnacked(b)
	if len(s.unacked) != 2 || !s.mayHaveStored("a") || !s.mayHaveStored("b") {
		t.Errorf("%d doubts", len(s.unacked))
	}
	s.retractUnacked()
	s.retractUnacked()
	if len(s.unacked) != 1 || !s.mayHaveStored("a") || s.mayHaveStored("b") {
		t.Errorf("%d doubts after two were refused", len(s.unacked))
	}
}

// CES-29: a slice that waits for its finalizers is not deleted again, also by the
// next leader. It takes no endpoints that it did not have, and loses those that
// belong in it no more.
func TestTerminatingSlice(t *testing.T) {
	l := &leader{view: map[slim.Key]v2alpha1.CoreCiliumEndpoint{}}
	l.plan = newPlanner(10, false, func() string { return "new" })
	l.plan.observe("held", stored{uid: slim.ParseUID("held"), revision: 5, namespace: "ns", terminating: true})
	stale := []ciliumio.SliceEndpoint{{Name: "gone"}}
	l.plan.observe("stale", stored{uid: slim.ParseUID("stale"), revision: 7, namespace: "ns", endpoints: stale, terminating: true})
	l.plan.observe("empty", stored{uid: slim.ParseUID("empty"), revision: 6, namespace: "ns"})
	l.plan.bootstrap(l.says)
	l.plan.confirm()
	for name, want := range map[string]opKind{"held": opNone, "stale": opUpdate, "empty": opDelete} {
		if o := l.plan.nextOp(name, l.says); o.kind != want {
			t.Errorf("%q is to be done with the slice %s, want %q", verbs[o.kind], name, verbs[want])
		} else {
			l.plan.recordStart(o)
			if want == opDelete {
				l.plan.recordWrite(o, slim.UID{}, 0)
			}
		}
	}
	key := slim.Key{Namespace: "ns", Name: "e"}
	e := v2alpha1.CoreCiliumEndpoint{Name: key.Name, Networking: &v2.EndpointNetworking{NodeIP: "10.0.0.1"}}
	l.view[key] = e
	l.plan.upsert(key, ciliumio.SliceEndpointOf(&e), size(&e))
	if home := l.plan.sliceOf(key); home.name != "new" {
		t.Errorf("a new endpoint goes to %s", home.name)
	}
	l.plan.recordDeleted("held", slim.ParseUID("held"))
	l.plan.recordStart(l.plan.nextOp("held", l.says))
	if l.plan.slices["held"] != nil {
		t.Error("it is remembered when it is gone")
	}
}

// CES-13: a slice of another writer is deleted when its endpoints are in other slices,
// and not before.
func TestForeignSliceGoesWhenItsEndpointsAreElsewhere(t *testing.T) {
	l := &leader{view: map[slim.Key]v2alpha1.CoreCiliumEndpoint{}, spoilt: map[slim.Key]bool{}}
	l.plan = newPlanner(10, false, func() string { return "ours" })
	l.plan.bootstrap(l.says)
	l.plan.confirm()
	key := slim.Key{Namespace: "ns", Name: "e"}
	e := v2alpha1.CoreCiliumEndpoint{Name: key.Name, Networking: &v2.EndpointNetworking{NodeIP: "10.0.0.1"}}
	l.view[key] = e
	entry := ciliumio.SliceEndpointOf(&e)
	l.plan.upsert(key, entry, size(&e))
	l.plan.observe("theirs", stored{uid: slim.ParseUID("theirs"), revision: 5, namespace: "ns", endpoints: []ciliumio.SliceEndpoint{entry}})
	order := func(name string, want opKind) writeOp {
		t.Helper()
		o := l.plan.nextOp(name, l.says)
		if o.kind != want {
			t.Fatalf("%q is to be done with the slice %s, want %q", verbs[o.kind], name, verbs[want])
		}
		l.plan.recordStart(o)
		return o
	}
	order("theirs", opNone)
	l.plan.recordWrite(order("ours", opCreate), slim.ParseUID("ours"), 6)
	order("theirs", opDelete)
}

// CES-13: an endpoint that belongs in its earlier slice again, before that slice was written without it, leaves the other
// one, although the earlier slice needs no write.
func TestAnEndpointThatComesBackLeavesTheOtherSlice(t *testing.T) {
	for name, refused := range map[string]bool{"before the write begins": false, "while the write is refused": true} {
		t.Run(name, func(t *testing.T) {
			l := &leader{view: map[slim.Key]v2alpha1.CoreCiliumEndpoint{}, spoilt: map[slim.Key]bool{}, ready: map[string]bool{}}
			names := 0
			l.plan = newPlanner(10, true, func() string { names++; return fmt.Sprint("ces-", names) })
			l.plan.bootstrap(l.says)
			l.plan.confirm()
			key := slim.Key{Namespace: "ns", Name: "e"}
			say := func(identity int64) {
				e := v2alpha1.CoreCiliumEndpoint{Name: key.Name, IdentityID: identity, Networking: &v2.EndpointNetworking{NodeIP: "10.0.0.1"}}
				l.view[key] = e
				l.plan.upsert(key, ciliumio.SliceEndpointOf(&e), size(&e))
				l.collect()
			}
			start := func(name string, want opKind) writeOp {
				t.Helper()
				delete(l.ready, name)
				o := l.plan.nextOp(name, l.says)
				if o.kind != want {
					t.Fatalf("%q is to be done with the slice %s, want %q", verbs[o.kind], name, verbs[want])
				}
				l.plan.recordStart(o)
				l.collect()
				return o
			}
			done := func(o writeOp, revision slim.Revision) {
				l.plan.recordWrite(o, slim.ParseUID(o.slice.name), revision)
				l.collect()
			}
			say(1)
			done(start("ces-1", opCreate), 5)
			say(2)
			done(start("ces-2", opCreate), 6)
			if refused {
				o := start("ces-1", opDelete)
				say(1)
				l.plan.recordFailure(o, true)
				l.collect()
			} else {
				say(1)
			}
			start("ces-1", opNone)
			if !l.ready["ces-2"] {
				t.Fatal("the other slice is not enqueued")
			}
			start("ces-2", opDelete)
		})
	}
}
