// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"container/heap"
	"context"
	"fmt"
	"math/bits"
	"time"
)

// subscription is one subscriber's position in a change list and what it holds
// at the moment: the keys in flight and the keys to come again. All fields are
// under the lock of the change list.
type subscription[T any] struct {
	changes *changes[T]
	subscribeOptions

	// The position: nodes up to pos are passed, next is the first one that is
	// not. With ChangesFirst there are two: nodes up to split are the initial
	// state, walked by old and oldPos when nothing is after pos.
	next, old *node[T]
	pos       uint64
	oldPos    uint64
	split     uint64
	pending   int                   // nodes not passed
	slot      int                   // bit of node.seen, or -1
	beyond    map[*node[T]]struct{} // in place of the bit

	// The initial state: live nodes born up to start that were unseen at start.
	start    uint64
	left     int
	counting bool
	syncNode *node[T] // stands for the Sync event

	flights map[*node[T]]flight // delivered, not Done
	ids     uint64
	offered *node[T] // delivered to the channel, not received: may be taken back
	ready   []*node[T]
	failed  map[*node[T]]*failure[T]
	due     failureHeap[T]

	idle    bool
	enough  int // an idle subscription is woken when so many nodes are pending
	stopped bool
	wake    chan struct{}
	timer   *time.Timer // retries
	watch   *time.Timer // overdue flights
	watched bool        // watch is running
	overdue bool
	misused bool
}

// flight is an event that was delivered.
type flight struct {
	id      uint64
	seq     uint64 // of the state that was delivered
	since   time.Time
	first   bool // the subscription had not seen the key
	initial bool // it was part of the initial state
	dirty   bool // passed again while in flight
}

// failure is a key that was Done with an error.
type failure[T any] struct {
	node     *node[T]
	attempts int
	at       time.Time
	index    int // in the heap, -1 if it is not waiting
}

// subscribe adds a subscription at the head of the list. The caller has the
// lock.
func (c *changes[T]) subscribe(options subscribeOptions) *subscription[T] {
	s := &subscription[T]{
		changes:          c,
		subscribeOptions: options,
		next:             c.head,
		pending:          c.nodes.Len(),
		slot:             bits.TrailingZeros64(^c.slots),
		syncNode:         &node[T]{},
		flights:          map[*node[T]]flight{},
		failed:           map[*node[T]]*failure[T]{},
		wake:             make(chan struct{}, 1),
	}
	if s.slot < 64 {
		c.slots |= 1 << s.slot
	} else {
		s.slot, s.beyond = -1, map[*node[T]]struct{}{}
	}
	c.subs = append(c.subs, s)
	if c.isSynced() {
		s.begin()
	}
	return s
}

// begin is the moment from which the initial state counts: all that is live now
// and unseen comes before Sync.
func (s *subscription[T]) begin() {
	s.start, s.counting = s.changes.seq, true
	for n := s.changes.head; n != nil; n = n.next {
		if !n.deleted && !s.sees(n) {
			s.left++
		}
	}
	if s.changesFirst {
		s.split, s.old, s.oldPos = s.start, s.next, s.pos
		s.pos, s.next = s.start, nil
	}
}

// leave ends the subscription.
func (s *subscription[T]) leave() {
	c := s.changes
	c.mu.Lock()
	defer c.unlockAndReport()
	s.stopped = true
	for i, other := range c.subs {
		if other == s {
			c.subs = append(c.subs[:i:i], c.subs[i+1:]...)
			break
		}
	}
	for n := c.head; n != nil; {
		next := n.next
		s.unsee(n)
		n = next
	}
	if s.slot >= 0 {
		c.slots &^= 1 << s.slot
	}
	for _, t := range []*time.Timer{s.timer, s.watch} {
		if t != nil {
			t.Stop()
		}
	}
	clear(s.flights)
	clear(s.failed)
	s.due, s.ready, s.offered = nil, nil, nil
	c.health.later(s.condition(), nil)
}

// sees reports whether the subscription was given an Upsert of the key since its
// last Delete.
func (s *subscription[T]) sees(n *node[T]) bool {
	if s.slot >= 0 {
		return n.seen&(1<<s.slot) != 0
	}
	_, ok := s.beyond[n]
	return ok
}

func (s *subscription[T]) see(n *node[T]) {
	if s.slot >= 0 {
		n.seen |= 1 << s.slot
		return
	}
	s.beyond[n] = struct{}{}
	n.beyond++
}

// unsee drops a tombstone that nobody else has seen.
func (s *subscription[T]) unsee(n *node[T]) {
	if !s.sees(n) {
		return
	}
	if s.slot >= 0 {
		n.seen &^= 1 << s.slot
	} else {
		delete(s.beyond, n)
		n.beyond--
	}
	if n.deleted && n.unseen() {
		s.changes.drop(n)
	}
}

// passed reports whether the position is behind n.
func (s *subscription[T]) passed(n *node[T]) bool {
	if n.seq <= s.split {
		return n.seq <= s.oldPos
	}
	return n.seq <= s.pos
}

// stepOver moves the positions off a node that leaves its place.
func (s *subscription[T]) stepOver(n *node[T]) {
	if s.next == n {
		s.next = n.next
	}
	if s.old == n {
		s.old = n.next
	}
}

// isInitial reports whether n is part of the initial state and still to come.
func (s *subscription[T]) isInitial(n *node[T]) bool {
	return s.counting && n.born <= s.start && !s.sees(n)
}

// forgetInitial takes a deleted node off the initial state.
func (s *subscription[T]) forgetInitial(n *node[T]) {
	if s.isInitial(n) {
		s.left--
		s.signalIdle()
	}
}

func (s *subscription[T]) signal() {
	s.idle = false
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *subscription[T]) signalIdle() {
	if s.idle {
		s.signal()
	}
}

// take delivers the next event, if there is one: keys that come again, then
// Sync as soon as it is due, then the list.
func (s *subscription[T]) take(now time.Time) (Event[T], bool) {
	s.offered = nil
	if n := s.takeAgain(now); n != nil {
		return s.deliver(n, now), true
	}
	if s.counting && s.left == 0 {
		s.counting = false
		return s.deliver(s.syncNode, now), true
	}
	for n := s.step(); n != nil; n = s.step() {
		if f, busy := s.flights[n]; busy {
			f.dirty = true
			s.flights[n] = f
			continue
		}
		if !n.deleted || s.sees(n) {
			return s.deliver(n, now), true
		}
	}
	return Event[T]{}, false
}

// step passes the next node.
func (s *subscription[T]) step() *node[T] {
	if n := s.next; n != nil {
		s.next, s.pos = n.next, n.seq
		s.pending--
		return n
	}
	if n := s.old; n != nil && n.seq <= s.split {
		s.old, s.oldPos = n.next, n.seq
		s.pending--
		return n
	}
	s.old = nil
	return nil
}

// takeAgain returns the next key that comes again: one that changed while it was
// in flight, or one whose retry is due. A key that changed since then is left to
// the list.
func (s *subscription[T]) takeAgain(now time.Time) *node[T] {
	for len(s.ready) > 0 {
		n := s.ready[0]
		s.ready = s.ready[1:]
		if s.comesAgain(n) {
			return n
		}
	}
	for len(s.due) > 0 && !s.due[0].at.After(now) {
		if n := heap.Pop(&s.due).(*failure[T]).node; s.comesAgain(n) {
			return n
		}
	}
	return nil
}

func (s *subscription[T]) comesAgain(n *node[T]) bool {
	if n == s.syncNode {
		return true
	}
	_, busy := s.flights[n]
	return !busy && s.passed(n) && (!n.deleted || s.sees(n))
}

// deliver puts n in flight.
func (s *subscription[T]) deliver(n *node[T], now time.Time) Event[T] {
	s.ids++
	f := flight{id: s.ids, seq: n.seq, since: now}
	e := Event[T]{Kind: Sync, sub: s, node: n, id: f.id}
	if n != s.syncNode {
		e.Kind, e.Key, e.Object = Upsert, n.meta().Key(), n.obj
		if n.deleted {
			e.Kind = Delete
		}
		if f.first = !s.sees(n); f.first {
			if f.initial = s.isInitial(n); f.initial {
				s.left--
			}
			s.see(n)
		}
	}
	if len(s.failed) > 0 {
		s.unscheduled(n)
	}
	s.flights[n] = f
	s.watchOver()
	return e
}

// unscheduled takes n off the retries that wait; its failures still count.
func (s *subscription[T]) unscheduled(n *node[T]) {
	if f := s.failed[n]; f != nil && f.index >= 0 {
		heap.Remove(&s.due, f.index)
	}
}

// offer is take for a channel: until the event is received it may go stale.
func (s *subscription[T]) offer() (Event[T], bool) {
	s.changes.mu.Lock()
	defer s.changes.mu.Unlock()
	if s.over() {
		return Event[T]{}, false
	}
	e, ok := s.take(s.changes.now())
	if ok {
		s.offered = e.node
	}
	return e, ok
}

// takeBack undoes an offer whose object has changed meanwhile; the list has the
// new state. It reports false if the offer stands.
func (s *subscription[T]) takeBack(e Event[T]) bool {
	s.changes.mu.Lock()
	defer s.changes.mu.Unlock()
	if s.over() {
		return true
	}
	n := e.node
	f := s.flights[n]
	if n == s.syncNode || f.seq == n.seq {
		return false
	}
	delete(s.flights, n)
	s.offered = nil
	if f.first {
		if f.initial && !n.deleted && n.born <= s.start {
			s.left++
		}
		s.unsee(n)
	}
	return true
}

// over reports whether the subscription has ended.
func (s *subscription[T]) over() bool { return s.stopped || s.changes.closed }

// finish is Done.
func (s *subscription[T]) finish(e Event[T], err error) {
	var r Retry
	if err != nil {
		r = s.retry(s.attempts(e.node)+1, err)
	}
	s.changes.mu.Lock()
	s.settle(e, r)
	s.changes.unlockAndReport()
}

func (s *subscription[T]) attempts(n *node[T]) int {
	s.changes.mu.Lock()
	defer s.changes.mu.Unlock()
	if f := s.failed[n]; f != nil {
		return f.attempts
	}
	return 0
}

// settle takes an event out of flight.
func (s *subscription[T]) settle(e Event[T], r Retry) {
	n := e.node
	f, ok := s.flights[n]
	if !ok || f.id != e.id {
		s.misuse(e)
		return
	}
	delete(s.flights, n)
	if s.offered == n {
		s.offered = nil
	}
	switch r.action {
	case finished:
		s.forgive(n)
		if e.Kind == Delete {
			s.unsee(n)
		}
	case again:
		s.schedule(n, s.changes.now().Add(r.after))
	case stop:
		s.stopped = true
		s.signal()
	}
	if f.dirty && s.passed(n) && (!n.deleted || s.sees(n)) {
		s.ready = append(s.ready, n)
		s.unscheduled(n)
	}
	if s.overdue {
		s.judge(s.changes.now())
	}
	s.signalIdle()
}

func (s *subscription[T]) misuse(e Event[T]) {
	if !s.misused && !s.stopped {
		s.misused = true
		s.changes.health.remark("Done was called more than once for an event; only the first call counts",
			"subscriber", s.name, "key", e.Key.String())
	}
}

// forgive forgets the failures of n.
func (s *subscription[T]) forgive(n *node[T]) {
	if len(s.failed) > 0 {
		s.unscheduled(n)
		delete(s.failed, n)
	}
}

func (s *subscription[T]) schedule(n *node[T], at time.Time) {
	f := s.failed[n]
	if f == nil {
		f = &failure[T]{node: n, index: -1}
		s.failed[n] = f
	}
	f.attempts++
	f.at = at
	heap.Push(&s.due, f)
}

// sleep waits until there may be something to take. It reports false if the
// subscription is over.
func (s *subscription[T]) sleep(ctx context.Context) bool {
	s.changes.mu.Lock()
	if s.over() {
		s.changes.mu.Unlock()
		return false
	}
	if s.available() > 0 {
		s.changes.mu.Unlock()
		return ctx.Err() == nil
	}
	s.idle, s.enough = true, 1
	var due <-chan time.Time
	if len(s.due) > 0 {
		due = s.alarm(s.due[0].at.Sub(s.changes.now()))
	}
	s.changes.mu.Unlock()
	select {
	case <-s.wake:
		return true
	case <-due:
		return true
	case <-ctx.Done():
		return false
	}
}

// gather waits until there are max events to take, or for so long. It reports
// false if there is none, so that nobody takes one that comes just then without
// the wait.
func (s *subscription[T]) gather(ctx context.Context, max int, wait time.Duration) bool {
	if wait <= 0 {
		return true
	}
	enough := time.NewTimer(wait)
	defer enough.Stop()
	for {
		s.changes.mu.Lock()
		n := s.available()
		if n == 0 || n >= max || s.over() {
			s.changes.mu.Unlock()
			return n > 0
		}
		s.idle, s.enough = true, s.pending+max-n
		s.changes.mu.Unlock()
		select {
		case <-s.wake:
		case <-enough.C:
			return true
		case <-ctx.Done():
			return true
		}
	}
}

// takeAll appends up to max events to batch.
func (s *subscription[T]) takeAll(batch Batch[T], max int) Batch[T] {
	s.changes.mu.Lock()
	defer s.changes.mu.Unlock()
	now := s.changes.now()
	for len(batch) < max && !s.over() {
		e, ok := s.take(now)
		if !ok {
			break
		}
		batch = append(batch, e)
	}
	return batch
}

func (s *subscription[T]) alarm(after time.Duration) <-chan time.Time {
	if s.timer == nil {
		s.timer = time.NewTimer(after)
	} else {
		s.timer.Reset(after)
	}
	return s.timer.C
}

// available returns how many events there are to take, at most: nodes to skip
// are counted too.
func (s *subscription[T]) available() int {
	n := s.pending + len(s.ready)
	if s.counting && s.left == 0 {
		n++
	}
	if len(s.due) > 0 && !s.due[0].at.After(s.changes.now()) {
		n++
	}
	return n
}

// watchOver makes sure that a key that stays in flight is noticed. The clock runs
// on while other keys come and go, so that a delivery does not cost a timer.
func (s *subscription[T]) watchOver() {
	switch {
	case s.watched || s.overdueAfter <= 0:
		return
	case s.watch == nil:
		s.watch = time.AfterFunc(s.overdueAfter, s.inspect)
	default:
		s.watch.Reset(s.overdueAfter)
	}
	s.watched = true
}

// inspect looks after the flights when the clock has run out.
func (s *subscription[T]) inspect() {
	s.changes.mu.Lock()
	if s.watched = !s.over() && len(s.flights) > 0; s.watched {
		s.watch.Reset(s.judge(s.changes.now()))
	}
	s.changes.unlockAndReport()
}

// judge reports the oldest flight if it is overdue, and returns when to look
// again.
func (s *subscription[T]) judge(now time.Time) time.Duration {
	key, since, ok := s.oldest()
	age := now.Sub(since)
	s.overdue = ok && age >= s.overdueAfter
	if !s.overdue {
		s.changes.health.later(s.condition(), nil)
		return s.overdueAfter - age
	}
	s.changes.health.later(s.condition(), fmt.Errorf(
		"%s was delivered at %s and is not Done: a handler hangs, forgot it, or nobody receives", key, since.UTC().Format(time.RFC3339)))
	return s.overdueAfter
}

// oldest returns the key that is in flight longest.
func (s *subscription[T]) oldest() (key string, since time.Time, ok bool) {
	var first *node[T]
	for n, f := range s.flights {
		if first == nil || f.since.Before(since) {
			first, since = n, f.since
		}
	}
	switch first {
	case nil:
		return "", time.Time{}, false
	case s.syncNode:
		return Sync.String(), since, true
	}
	return first.meta().Key().String(), since, true
}

func (s *subscription[T]) condition() string { return "subscriber " + s.name }

// failureHeap is the failures that wait, soonest first.
type failureHeap[T any] []*failure[T]

func (h failureHeap[T]) Len() int           { return len(h) }
func (h failureHeap[T]) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h failureHeap[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *failureHeap[T]) Push(x any) {
	f := x.(*failure[T])
	f.index = len(*h)
	*h = append(*h, f)
}

func (h *failureHeap[T]) Pop() any {
	old := *h
	f := old[len(old)-1]
	f.index = -1
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return f
}
