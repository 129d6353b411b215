// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// The change list is held against a model: random schedules of writes and of
// what subscribers do, one step at a time, without goroutines and with a clock
// of the test's own. After each step the promises that can be checked then are;
// at the end everybody comes to rest and the rest is. A failure prints its seed
// and its steps.
//
// SKEP_SOAK=1 runs twenty million schedules in place of one.

type thing struct {
	slim.Meta `json:"metadata"`
}

var modelKeys = []string{"a", "b", "c", "d"}

type model struct {
	rng   *rand.Rand
	now   time.Time
	c     *changes[thing]
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
	*subscription[thing]
	offer     *Event[thing] // by the pump, not received
	flying    map[string]Event[thing]
	seen      map[string]bool          // was given an Upsert and has not finished a Delete
	last      map[string]slim.Revision // newest state it was given
	retryAt   map[string]time.Time     // of keys that were Done with an error
	initial   map[string]bool          // still to come before Sync
	began     bool
	syncs     int
	syncDone  bool
	giveUp    map[string]slim.Revision
	past      []Event[thing] // that are Done
	batchOnly bool
}

func TestModel(t *testing.T) {
	schedules := 1_000_000
	if os.Getenv("SKEP_SOAK") != "" {
		schedules = 20_000_000
	}
	if testing.Short() || RaceEnabled {
		schedules = 50_000
	}
	seed := uint64(time.Now().UnixNano())
	for i := range uint64(schedules) {
		if m := runModel(seed, i, false); m.failure != "" {
			m = runModel(seed, i, true)
			t.Fatalf("schedule %d of seed %d: %s\nafter:\n  %s", i, seed, m.failure, strings.Join(m.steps, "\n  "))
		}
	}
}

func runModel(seed, schedule uint64, logging bool) (m *model) {
	m = &model{
		rng: rand.New(rand.NewPCG(seed, schedule)), now: time.Unix(0, 0), live: map[string]slim.Revision{},
		c: newChanges[thing](newConditions(slog.New(slog.DiscardHandler), nil)), logging: logging,
	}
	m.c.now = func() time.Time { return m.now }
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
	case n < 48:
		m.advance()
	case len(m.subs) > 0:
		s := m.subs[m.rng.IntN(len(m.subs))]
		switch n := m.rng.IntN(10); {
		case n < 5:
			m.receive(s)
		case n < 6:
			m.batch(s)
		default:
			m.done(s, m.rng.IntN(3) == 0)
		}
	}
}

func thing1(name string, rv slim.Revision) *thing {
	o := &thing{}
	o.Name, o.ResourceVersion = name, rv
	return o
}

func key1(name string) slim.Key { return slim.Key{Name: name} }

func (m *model) put(name string) {
	if !m.c.isSynced() {
		return // before the first list nothing changes
	}
	m.rv++
	m.log("put %s@%d", name, m.rv)
	m.live[name] = m.rv
	m.c.upsert(thing1(name, m.rv))
	if m.rng.IntN(4) == 0 {
		m.c.upsert(thing1(name, m.rv)) // heard twice
	}
}

func (m *model) remove(name string) {
	if !m.c.isSynced() {
		return
	}
	m.rv++
	m.log("delete %s@%d", name, m.rv)
	m.gone(name)
	m.c.remove(key1(name), m.rv)
}

func (m *model) gone(name string) {
	delete(m.live, name)
	for _, s := range m.subs {
		delete(s.initial, name)
	}
}

// replace is a list: some objects changed unseen, came or went.
func (m *model) replace() {
	m.log("replace")
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
	m.c.replace(objs, same, nil, m.rv)
	for _, s := range m.subs {
		m.begin(s)
	}
}

func (m *model) begin(s *modelSub) {
	if s.began || !m.c.isSynced() {
		return
	}
	s.began = true
	for name := range m.live {
		s.initial[name] = true
	}
}

func (m *model) subscribe() {
	m.names++
	changesFirst := m.rng.IntN(3) == 0
	m.log("subscribe %d, changes first %v", m.names, changesFirst)
	s := &modelSub{
		flying: map[string]Event[thing]{}, seen: map[string]bool{}, last: map[string]slim.Revision{},
		retryAt: map[string]time.Time{}, initial: map[string]bool{}, giveUp: map[string]slim.Revision{},
		batchOnly: m.rng.IntN(3) == 0,
	}
	policy := func(attempt int, err error) Retry {
		if errors.Is(err, errGiveUp) {
			return GiveUp()
		}
		return Again(time.Duration(attempt) * time.Second)
	}
	slots := m.c.slots
	if full := m.rng.IntN(8) == 0; full {
		m.c.slots = ^uint64(0)
		defer func() { m.c.slots = slots }()
	}
	s.subscription = m.c.subscribe(subscribeOptions{
		name: fmt.Sprint(m.names), retry: policy, changesFirst: changesFirst,
	}, func() {})
	m.subs = append(m.subs, s)
	m.begin(s)
}

func (m *model) leave(i int) {
	s := m.subs[i]
	m.log("%s leaves", s.name)
	s.leave()
	m.subs = append(m.subs[:i:i], m.subs[i+1:]...)
}

func (m *model) advance() {
	d := time.Duration(m.rng.IntN(3000)) * time.Millisecond
	m.log("advance %v", d)
	m.now = m.now.Add(d)
}

// receive plays the pump and a receiver: the pump takes its offer back if it is
// woken.
func (m *model) receive(s *modelSub) {
	if s.batchOnly {
		m.batch(s)
		return
	}
	if s.offer == nil {
		e, ok := s.subscription.offer()
		if !ok {
			m.log("%s has nothing to receive", s.name)
			return
		}
		s.offer = &e
		m.log("%s is offered %v %s@%d", s.name, e.Kind, e.Key, revisionOf(e))
		return
	}
	select {
	case <-s.wake:
		if s.takeBack(*s.offer) {
			m.log("%s's offer is taken back", s.name)
			s.offer = nil
			return
		}
	default:
	}
	e := *s.offer
	s.offer = nil
	m.given(s, e)
}

func revisionOf(e Event[thing]) slim.Revision {
	if e.Object == nil {
		return 0
	}
	return e.Object.ResourceVersion
}

func (m *model) batch(s *modelSub) {
	if s.offer != nil {
		return // one face at a time
	}
	batch := s.takeAll(nil, 1+m.rng.IntN(3))
	m.log("%s takes a batch of %d", s.name, len(batch))
	for _, e := range batch {
		m.given(s, e)
	}
}

// given checks an event that has reached a subscriber.
func (m *model) given(s *modelSub, e Event[thing]) {
	name := e.Key.Name
	m.log("%s is given %v %s@%d", s.name, e.Kind, name, revisionOf(e))
	if e.Kind == Sync {
		name = "sync"
		if s.syncDone {
			m.fail("%s: a second Sync", s.name)
		}
		if s.syncs++; !m.c.isSynced() || len(s.initial) > 0 {
			m.fail("%s: Sync with %v of the initial state to come", s.name, s.initial)
		}
	}
	if _, busy := s.flying[name]; busy {
		m.fail("%s: %s in flight twice", s.name, name)
	}
	s.flying[name] = e
	rv, lives := m.live[name]
	switch e.Kind {
	case Upsert:
		if !lives || rv != e.Object.ResourceVersion {
			m.fail("%s: %s@%d is not the newest state, which is %d", s.name, name, e.Object.ResourceVersion, rv)
		}
		if s.last[name] == rv && s.seen[name] {
			at, failed := s.retryAt[name]
			if gaveUp := s.giveUp[name] == rv; !failed || gaveUp || m.now.Before(at) {
				m.fail("%s: %s@%d again without a reason (gave up %v, retry at %v, now %v)", s.name, name, rv, gaveUp, at, m.now)
			}
		}
		s.seen[name], s.last[name] = true, rv
		delete(s.initial, name)
	case Delete:
		if lives {
			m.fail("%s: Delete of %s, which lives", s.name, name)
		}
		if !s.seen[name] {
			m.fail("%s: Delete of %s, of which it saw no Upsert", s.name, name)
		}
	}
	delete(s.retryAt, name)
}

var (
	errAgain  = errors.New("again")
	errGiveUp = errors.New("give up")
)

func (m *model) done(s *modelSub, fails bool) {
	for _, name := range append([]string{"sync"}, modelKeys...) {
		e, ok := s.flying[name]
		if !ok {
			continue
		}
		delete(s.flying, name)
		var err error
		if fails {
			if err = errAgain; m.rng.IntN(4) == 0 {
				err = errGiveUp
			}
		}
		m.log("%s is done with %v %s: %v", s.name, e.Kind, name, err)
		attempts := 1
		if f := s.failed[e.node]; f != nil {
			attempts = f.attempts + 1
		}
		e.Done(err)
		s.past = append(s.past, e)
		if m.rng.IntN(4) == 0 {
			s.past[m.rng.IntN(len(s.past))].Done(errAgain) // once too often
		}
		switch {
		case err == errAgain:
			s.retryAt[name] = m.now.Add(time.Duration(attempts) * time.Second)
		case e.Kind == Delete:
			s.seen[name] = false
		case e.Kind == Sync:
			s.syncDone = true
		case err == errGiveUp:
			s.giveUp[name] = e.Object.ResourceVersion
		}
		return
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
			if n.unseen() {
				m.fail("a tombstone of %s that nobody waits for", n.meta().Key())
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
			m.fail("%s: %d pending, want %d", s.name, s.pending, pending)
		}
	}
}

// rest lets every subscriber finish everything, and checks what must be true
// then.
func (m *model) rest() {
	if !m.c.isSynced() {
		m.replace()
	}
	m.log("rest")
	for round := 0; ; round++ {
		if round > 200 {
			m.fail("no rest")
			return
		}
		m.now = m.now.Add(time.Hour)
		busy := false
		for _, s := range m.subs {
			for n := s.available() + 2; n > 0; n-- {
				m.receive(s)
			}
			for len(s.flying) > 0 {
				m.done(s, false)
				busy = true
			}
			busy = busy || s.offer != nil || s.available() > 0 || len(s.due) > 0
		}
		if m.failure != "" {
			return
		}
		if !busy {
			break
		}
	}
	for _, s := range m.subs {
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
			m.fail("%s: last saw %s@%d, want %d", s.name, name, s.last[name], rv)
		}
	}
	for name, seen := range s.seen {
		if _, lives := m.live[name]; seen && !lives {
			m.fail("%s: no Delete of %s", s.name, name)
		}
	}
	if s.syncs == 0 || !s.syncDone {
		m.fail("%s: no Sync", s.name)
	}
	if len(s.flights) > 0 || len(s.failed) > 0 || len(s.due) > 0 || len(s.ready) > 0 || s.pending > 0 {
		m.fail("%s: holds %d flights, %d failures at rest", s.name, len(s.flights), len(s.failed))
	}
}
