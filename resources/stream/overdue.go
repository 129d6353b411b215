// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"fmt"
	"time"
)

// flight is an event that was delivered.
type flight struct {
	id      uint64
	seq     uint64 // of the state that was delivered
	since   time.Time
	first   bool // the subscription had not seen the key
	initial bool // it was part of the initial state
	dirty   bool // passed again while in flight
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
