// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"container/heap"
	"time"
)

// failure is a key that was Done with an error.
type failure[T any] struct {
	node     *node[T]
	attempts int
	at       time.Time
	index    int // in the heap, -1 if it is not waiting
}

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

// failureHeap is the failures that wait, soonest first.
type failureHeap[T any] []*failure[T]

func (h failureHeap[T]) Len() int { return len(h) }

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
