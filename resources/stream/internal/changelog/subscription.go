// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package changelog

import (
	"context"
	"math/bits"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// Options set up a subscription.
type Options struct {
	Name        string
	NewestFirst bool
	BatchSize   int
	Gaps        bool // whether Drain returns gaps
}

// Subscription is the position of one subscriber in a change list. All fields
// are under the lock of the change list.
type Subscription[P any] struct {
	log *Log[P]
	Options

	// The position: nodes up to pos are passed, next is the first one that is
	// not. With NewestFirst there are two: nodes up to split are the initial
	// state, walked by old and oldPos when nothing is after pos.
	next, old *node[P]
	pos       uint64
	oldPos    uint64
	split     uint64
	pending   int                   // nodes not passed
	bit       int                   // of node.seen, or -1
	overflow  map[*node[P]]struct{} // in place of the bit

	// The initial state: live nodes born up to start that were unseen at start.
	complete         func() // called once it is known, or not waited for any more
	start            uint64
	initialRemaining int
	counting         bool // until the sync mark

	gap        bool // objects may have come and gone unseen, which Drain has not returned
	processing int  // size of the batch that the subscriber works on
	idle       bool // waits for wake
	stopped    bool
	wake       chan struct{}
}

// Subscribe adds a subscription at the head of the list. complete is called once
// the initial state is known, with the lock held.
func (l *Log[P]) Subscribe(options Options, complete func()) *Subscription[P] {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &Subscription[P]{
		log:      l,
		Options:  options,
		complete: complete,
		next:     l.head,
		pending:  l.nodes.Len(),
		bit:      bits.TrailingZeros64(^l.bits),
		wake:     make(chan struct{}, 1),
	}
	if s.bit < 64 {
		l.bits |= 1 << s.bit
	} else {
		s.bit, s.overflow = -1, map[*node[P]]struct{}{}
	}
	l.subs = append(l.subs, s)
	if l.IsSynced() {
		s.countInitial()
	}
	return s
}

// countInitial fixes the initial state: all that is live now and unseen comes
// before the sync mark.
func (s *Subscription[P]) countInitial() {
	s.complete()
	s.start, s.counting = s.log.seq, true
	for n := s.log.head; n != nil; n = n.next {
		if !n.deleted && !s.hasSeen(n) {
			s.initialRemaining++
		}
	}
	if s.NewestFirst {
		s.split, s.old, s.oldPos = s.start, s.next, s.pos
		s.pos, s.next = s.start, nil
	}
}

// Wait returns when Drain may have something. It reports false if the subscription
// is over.
func (s *Subscription[P]) Wait(ctx context.Context) bool {
	s.log.mu.Lock()
	s.processing = 0
	if s.isOver() {
		s.log.mu.Unlock()
		return false
	}
	if s.pending > 0 || s.isSyncDue() || s.isGapDue() {
		s.log.mu.Unlock()
		return ctx.Err() == nil
	}
	s.idle = true
	s.log.mu.Unlock()
	select {
	case <-s.wake:
		return true
	case <-ctx.Done():
		return false
	}
}

// Drain emits what has changed, up to BatchSize keys: each with its newest state, or
// with its last one if it was deleted. It returns their number, and the sync mark as
// soon as that is due. If objects may have come and gone unseen, gap is the revision
// up to which all has been emitted, once that is so. emit is called with the lock held.
func (s *Subscription[P]) Drain(emit func(obj P, deleted bool)) (n int, synced bool, gap slim.Revision) {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	if s.isOver() {
		return 0, false, 0
	}
	for n < s.BatchSize {
		next := s.step()
		if next == nil {
			break
		}
		if next.deleted && !s.hasSeen(next) {
			s.recordGapOf(next)
			continue
		}
		s.deliver(next)
		emit(next.obj, next.deleted)
		n++
	}
	s.processing = n
	if s.isSyncDue() {
		s.counting, synced = false, true
		s.processing = max(1, n)
	}
	if s.isGapDue() {
		s.gap, gap = false, s.log.revision
	}
	return n, synced, gap
}

// step passes the next node.
func (s *Subscription[P]) step() *node[P] {
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

// deliver records that the subscriber gets the state of a node that was passed.
func (s *Subscription[P]) deliver(n *node[P]) {
	switch {
	case n.deleted:
		s.unmarkSeen(n)
	case !s.hasSeen(n):
		s.dropInitial(n)
		s.markSeen(n)
	}
}

func (s *Subscription[P]) isSyncDue() bool { return s.counting && s.initialRemaining == 0 }

func (s *Subscription[P]) isGapDue() bool { return s.gap && s.pending == 0 }

// recordGapOf records that of a tombstone that the subscription is not given, unless the
// object was gone before it began.
func (s *Subscription[P]) recordGapOf(n *node[P]) {
	if n.seq > s.start {
		s.recordGap()
	}
}

// recordGap records that objects may have come and gone unseen.
func (s *Subscription[P]) recordGap() {
	if s.Gaps {
		s.gap = true
		s.wakeUp()
	}
}

// Leave ends the subscription.
func (s *Subscription[P]) Leave() {
	l := s.log
	l.mu.Lock()
	defer l.mu.Unlock()
	s.stopped = true
	s.complete()
	for i, other := range l.subs {
		if other == s {
			l.subs = append(l.subs[:i:i], l.subs[i+1:]...)
			break
		}
	}
	for n := l.head; n != nil; {
		next := n.next
		s.unmarkSeen(n)
		n = next
	}
	if s.bit >= 0 {
		l.bits &^= 1 << s.bit
	}
}

// hasSeen reports whether the subscription was given an Upsert of the key since its
// last Delete.
func (s *Subscription[P]) hasSeen(n *node[P]) bool {
	if s.bit >= 0 {
		return n.seen&(1<<s.bit) != 0
	}
	_, ok := s.overflow[n]
	return ok
}

func (s *Subscription[P]) markSeen(n *node[P]) {
	if s.bit >= 0 {
		n.seen |= 1 << s.bit
		return
	}
	s.overflow[n] = struct{}{}
	n.overflow++
}

// unmarkSeen removes a tombstone that no other subscription has seen.
func (s *Subscription[P]) unmarkSeen(n *node[P]) {
	if !s.hasSeen(n) {
		return
	}
	if s.bit >= 0 {
		n.seen &^= 1 << s.bit
	} else {
		delete(s.overflow, n)
		n.overflow--
	}
	if n.deleted && n.isUnseen() {
		s.log.drop(n)
	}
}

// passed reports whether the position is behind n.
func (s *Subscription[P]) passed(n *node[P]) bool {
	if n.seq <= s.split {
		return n.seq <= s.oldPos
	}
	return n.seq <= s.pos
}

// advancePast moves the positions off a node that leaves its place.
func (s *Subscription[P]) advancePast(n *node[P]) {
	if s.next == n {
		s.next = n.next
	}
	if s.old == n {
		s.old = n.next
	}
}

// dropInitial takes a node off what remains of the initial state, if it is part
// of it.
func (s *Subscription[P]) dropInitial(n *node[P]) {
	if s.counting && n.born <= s.start && !s.hasSeen(n) {
		s.initialRemaining--
		s.wakeUp()
	}
}

// wakeUp ends wait.
func (s *Subscription[P]) wakeUp() {
	if !s.idle {
		return
	}
	s.idle = false
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// isOver reports whether the subscription has ended.
func (s *Subscription[P]) isOver() bool { return s.stopped || isClosed(s.log.ended) }
