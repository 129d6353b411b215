// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"container/heap"
	"context"
	"time"
)

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
