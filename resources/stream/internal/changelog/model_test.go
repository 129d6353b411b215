// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package changelog

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/stream/internal/conditions"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// The change list is held against a model: random schedules of writes and of
// what subscribers take, one step at a time, without goroutines. After each step
// the promises that can be checked then are; at the end every subscriber takes
// all there is, and the others are. A failure prints its seed and its steps.
//
// SKEP_SOAK=1 runs twenty million schedules in place of one.

type thing struct {
	slim.Meta `json:"metadata"`
}

var modelKeys = []string{"a", "b", "c", "d"}

type model struct {
	rng   *rand.Rand
	c     *Log[*thing]
	rv    slim.Revision
	live  map[string]slim.Revision
	subs  []*modelSub
	names int

	logging bool // of a schedule that has failed and is run again
	steps   []string
	failure string
}

// modelSub is what a subscriber must have seen.
type modelSub struct {
	*Subscription[*thing]
	seen    map[string]bool          // was given an Upsert and no Delete since
	last    map[string]slim.Revision // newest state it was given
	initial map[string]bool          // still to come before the sync mark
	began   bool
	syncs   int
	lost    bool // an object may have come and gone that it was not given
}

func TestModel(t *testing.T) {
	schedules := 1_000_000
	if seedtest.Soak() {
		schedules = 20_000_000
	}
	if testing.Short() || seedtest.RaceEnabled {
		schedules = 50_000
	}
	seed := seedtest.Seed(t)
	for i := range uint64(schedules) {
		if m := runModel(seed, i, false); m.failure != "" {
			m = runModel(seed, i, true)
			t.Fatalf("schedule %d of seed %d: %s\nafter:\n  %s", i, seed, m.failure, strings.Join(m.steps, "\n  "))
		}
	}
}

func runModel(seed, schedule uint64, logging bool) (m *model) {
	m = &model{
		rng: rand.New(rand.NewPCG(seed, schedule)), live: map[string]slim.Revision{},
		c: New[*thing](conditions.New(slog.New(slog.DiscardHandler), nil)), logging: logging,
	}
	defer func() {
		if r := recover(); r != nil {
			m.fail("panic: %v\n%s", r, debug.Stack())
		}
	}()
	for range 8 + m.rng.IntN(40) {
		m.step()
		m.check()
		if m.failure != "" {
			return m
		}
	}
	m.rest()
	return m
}

// fail keeps the first failure.
func (m *model) fail(format string, args ...any) {
	if m.failure == "" {
		m.failure = fmt.Sprintf(format, args...)
		m.log("FAILURE: %s", m.failure)
	}
}

func (m *model) log(format string, args ...any) {
	if m.logging {
		m.steps = append(m.steps, fmt.Sprintf(format, args...))
	}
}

func (m *model) key() string { return modelKeys[m.rng.IntN(len(modelKeys))] }

func (m *model) step() {
	switch n := m.rng.IntN(100); {
	case n < 22:
		m.put(m.key())
	case n < 32:
		m.remove(m.key())
	case n < 36:
		m.replace()
	case n < 42 && len(m.subs) < 3:
		m.subscribe()
	case n < 43 && len(m.subs) > 0:
		m.leave(m.rng.IntN(len(m.subs)))
	case len(m.subs) > 0:
		m.take(m.subs[m.rng.IntN(len(m.subs))])
	}
}

func thing1(name string, rv slim.Revision) *thing {
	o := &thing{}
	o.Name, o.ResourceVersion = name, rv
	return o
}

func key1(name string) slim.Key { return slim.Key{Name: name} }

func (m *model) put(name string) {
	if !m.c.IsSynced() {
		return // before the first list nothing changes
	}
	m.rv++
	m.log("put %s@%d", name, m.rv)
	m.live[name] = m.rv
	m.c.Upsert(thing1(name, m.rv))
	if m.rng.IntN(4) == 0 {
		m.c.Upsert(thing1(name, m.rv)) // heard twice
	}
}

func (m *model) remove(name string) {
	if !m.c.IsSynced() {
		return
	}
	m.rv++
	m.log("delete %s@%d", name, m.rv)
	m.gone(name)
	m.c.Remove(key1(name), m.rv)
}

func (m *model) gone(name string) {
	_, lived := m.live[name]
	delete(m.live, name)
	for _, s := range m.subs {
		delete(s.initial, name)
		s.lost = s.lost || lived && !s.seen[name]
	}
}

// replace is a list: some objects changed unseen, came or went.
func (m *model) replace() {
	m.log("replace")
	for _, s := range m.subs {
		s.lost = s.lost || m.c.IsSynced()
	}
	var objs []*thing
	var same []slim.Key
	for _, name := range modelKeys {
		rv, lives := m.live[name]
		switch m.rng.IntN(4) {
		case 0: // changed, or new
			m.rv++
			rv, lives = m.rv, true
		case 1: // gone
			lives = false
		}
		if !lives {
			m.gone(name)
			continue
		}
		if m.live[name] == rv && m.rng.IntN(2) == 0 {
			same = append(same, key1(name))
			continue
		}
		m.live[name] = rv
		objs = append(objs, thing1(name, rv))
	}
	m.rv++
	m.c.Replace(objs, same, nil, m.rv)
	for _, s := range m.subs {
		m.begin(s)
	}
}

func (m *model) begin(s *modelSub) {
	if s.began || !m.c.IsSynced() {
		return
	}
	s.began = true
	for name := range m.live {
		s.initial[name] = true
	}
}

func (m *model) subscribe() {
	m.names++
	newestFirst := m.rng.IntN(3) == 0
	m.log("subscribe %d, newest first %v", m.names, newestFirst)
	s := &modelSub{seen: map[string]bool{}, last: map[string]slim.Revision{}, initial: map[string]bool{}}
	bits := m.c.bits
	if full := m.rng.IntN(8) == 0; full {
		m.c.bits = ^uint64(0)
		defer func() { m.c.bits = bits }()
	}
	s.Subscription = m.c.Subscribe(Options{Name: fmt.Sprint(m.names), NewestFirst: newestFirst, Gaps: m.rng.IntN(2) == 0}, func() {})
	m.subs = append(m.subs, s)
	m.begin(s)
}

func (m *model) leave(i int) {
	s := m.subs[i]
	m.log("%s leaves", s.Name)
	s.Leave()
	m.subs = append(m.subs[:i:i], m.subs[i+1:]...)
}

// take takes a batch and checks it.
func (m *model) take(s *modelSub) (ok bool) {
	s.BatchSize = 1 + m.rng.IntN(3)
	var batch []given
	n, synced, gap := s.Drain(func(obj *thing, deleted bool) { batch = append(batch, given{obj, deleted}) })
	m.log("%s takes a batch of %d, synced %v, gap %v", s.Name, n, synced, gap)
	if n != len(batch) {
		m.fail("%s: a batch of %d changes, returned as %d", s.Name, len(batch), n)
	}
	if n > s.BatchSize {
		m.fail("%s: a batch of %d, more than %d", s.Name, n, s.BatchSize)
	}
	twice := map[string]bool{}
	for _, change := range batch {
		if twice[change.obj.Name] {
			m.fail("%s: %s is in a batch twice", s.Name, change.obj.Name)
		}
		twice[change.obj.Name] = true
		m.given(s, change)
	}
	if synced {
		if s.syncs++; s.syncs > 1 {
			m.fail("%s: a second sync mark", s.Name)
		}
		if !m.c.IsSynced() || len(s.initial) > 0 {
			m.fail("%s: the sync mark with %v of the initial state to come", s.Name, s.initial)
		}
	}
	m.gap(s, gap)
	return n > 0 || synced || gap > 0
}

// gap checks a gap that a subscriber is told of.
func (m *model) gap(s *modelSub, until slim.Revision) {
	if until == 0 {
		return
	}
	if !s.Gaps || !s.lost {
		m.fail("%s: a gap without a reason; asked for gaps: %v", s.Name, s.Gaps)
	}
	if s.pending > 0 || until != m.rv {
		m.fail("%s: a gap until %d with %d changes to come, at %d", s.Name, until, s.pending, m.rv)
	}
	s.lost = false
}

// given is a change that a subscriber gets.
type given struct {
	obj     *thing
	deleted bool
}

// given checks a change that a subscriber gets.
func (m *model) given(s *modelSub, change given) {
	name := change.obj.Name
	m.log("%s is given %s@%d, deleted %v", s.Name, name, change.obj.ResourceVersion, change.deleted)
	rv, lives := m.live[name]
	switch {
	case !change.deleted:
		if !lives || rv != change.obj.ResourceVersion {
			m.fail("%s: %s@%d is not the newest state, which is %d", s.Name, name, change.obj.ResourceVersion, rv)
		}
		if s.last[name] == rv && s.seen[name] {
			m.fail("%s: %s@%d again without a reason", s.Name, name, rv)
		}
		s.seen[name], s.last[name] = true, rv
		delete(s.initial, name)
	default:
		if lives {
			m.fail("%s: Delete of %s, which lives", s.Name, name)
		}
		if !s.seen[name] {
			m.fail("%s: Delete of %s, of which it saw no Upsert", s.Name, name)
		}
		s.seen[name] = false
	}
}

// check holds what must be true after every step.
func (m *model) check() {
	tombstones := 0
	for n := m.c.head; n != nil; n = n.next {
		if n.next != nil && n.next.seq <= n.seq {
			m.fail("the list is not in order")
		}
		if n.deleted {
			tombstones++
			if n.isUnseen() {
				m.fail("a tombstone of %s that no subscription has seen", n.meta().Key())
			}
		}
	}
	if m.c.live != len(m.live) || m.c.nodes.Len() != m.c.live+tombstones {
		m.fail("%d live nodes and %d tombstones in a map of %d, want %d live", m.c.live, tombstones, m.c.nodes.Len(), len(m.live))
	}
	for _, s := range m.subs {
		pending := 0
		for n := m.c.head; n != nil; n = n.next {
			if !s.passed(n) {
				pending++
			}
		}
		if pending != s.pending {
			m.fail("%s: %d pending, want %d", s.Name, s.pending, pending)
		}
	}
}

// rest lets every subscriber take all there is, and checks what must be true
// then.
func (m *model) rest() {
	if !m.c.IsSynced() {
		m.replace()
	}
	m.log("rest")
	for _, s := range m.subs {
		for round := 0; m.take(s); round++ {
			if round > 200 {
				m.fail("no rest")
				return
			}
		}
		m.atRest(s)
	}
	m.check()
	if m.c.nodes.Len() != len(m.live) {
		m.fail("%d tombstones at rest", m.c.nodes.Len()-len(m.live))
	}
}

func (m *model) atRest(s *modelSub) {
	for name, rv := range m.live {
		if !s.seen[name] || s.last[name] != rv {
			m.fail("%s: last saw %s@%d, want %d", s.Name, name, s.last[name], rv)
		}
	}
	for name, seen := range s.seen {
		if _, lives := m.live[name]; seen && !lives {
			m.fail("%s: no Delete of %s", s.Name, name)
		}
	}
	if s.syncs == 0 {
		m.fail("%s: no sync mark", s.Name)
	}
	if s.pending > 0 {
		m.fail("%s: %d pending at rest", s.Name, s.pending)
	}
	if s.Gaps && s.lost {
		m.fail("%s: was not told that objects may have come and gone", s.Name)
	}
}
