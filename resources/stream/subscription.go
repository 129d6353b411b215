// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
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
	complete func() // to be called when it is known, or not waited for any more
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

// subscribe adds a subscription at the head of the list. complete is called once
// the initial state is known, with the lock held. The caller has the lock.
func (c *changes[T]) subscribe(options subscribeOptions, complete func()) *subscription[T] {
	s := &subscription[T]{
		changes:          c,
		subscribeOptions: options,
		complete:         complete,
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
	s.complete()
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
	s.complete()
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

// over reports whether the subscription has ended.
func (s *subscription[T]) over() bool { return s.stopped || s.changes.closed }
