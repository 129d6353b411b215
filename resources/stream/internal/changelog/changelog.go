// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package changelog

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/skep-operator/skep/resources/stream/internal/conditions"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// ErrClosed is the error of a closed list. It is not returned when the caller's context ends.
var ErrClosed = errors.New("stream is closed")

// Log is the change list of a stream: one node per key, in the order of their
// last change. An update moves its node to the tail. A subscriber is a position
// in the list: what it has not received is behind that position, newest state
// only, and a slow one costs nothing. Nodes of deleted keys stay as tombstones as
// long as a subscriber has an Upsert of them and no Delete.
//
// Everything is under one lock; nothing here blocks, starts a goroutine or calls
// foreign code (index functions excepted), so schedules of it can be replayed in
// tests step by step. P is a pointer to a slim type. The methods of this file that write, and Current and
// CurrentRevision, are called between Lock and Unlock. All others lock by
// themselves.
type Log[P any] struct {
	mu         sync.Mutex
	nodes      slim.KeyMap[*node[P]]
	head, tail *node[P]
	seq        uint64 // of the last change
	live       int    // nodes that are not tombstones
	revision   slim.Revision
	synced     chan struct{} // closed when the initial state is complete
	unreadable map[slim.Key]unreadable
	examples   []slim.Key // of unreadable, for health
	subs       []*Subscription[P]
	bits       uint64 // of node.seen that are taken
	indexes    map[buildable[P]]*builtIndex[P]
	waiters    []*waiter
	ended      chan struct{} // closed by Close
	health     *conditions.Set
}

// node is a key in the change list.
type node[P any] struct {
	prev, next *node[P]
	obj        P      // newest state; the last one of a tombstone
	seq        uint64 // position: number of its last change
	born       uint64 // number of the change that brought the key
	seen       uint64 // bit per subscription that was given an Upsert of it
	overflow   uint32 // subscriptions without a bit that were given one
	deleted    bool
}

// New makes an empty list, not synced, that reports to these conditions.
func New[P any](health *conditions.Set) *Log[P] {
	return &Log[P]{
		synced:     make(chan struct{}),
		ended:      make(chan struct{}),
		unreadable: map[slim.Key]unreadable{},
		indexes:    map[buildable[P]]*builtIndex[P]{},
		health:     health,
	}
}

// Lock begins changes.
func (l *Log[P]) Lock() { l.mu.Lock() }

// Unlock ends changes, and reports what they did to the conditions: health
// reporters are foreign code and run without the lock.
func (l *Log[P]) Unlock() {
	l.mu.Unlock()
	l.health.Report()
}

// Current returns the newest state of a key, if it exists.
func (l *Log[P]) Current(key slim.Key) (obj P, exists bool) {
	if n, _ := l.nodes.Get(key); n != nil && !n.deleted {
		return n.obj, true
	}
	return obj, false
}

// CurrentRevision returns the revision up to which the list is complete.
func (l *Log[P]) CurrentRevision() slim.Revision { return l.revision }

// Upsert takes over a new state of an object. A state with the resourceVersion
// that is known already is no change, but for what was cut and is not any more.
func (l *Log[P]) Upsert(obj P) {
	l.Put(obj)
	l.Advance(slim.MetaOf(obj).ResourceVersion)
}

// Put is Upsert of a state whose resourceVersion is not progress of the server.
func (l *Log[P]) Put(obj P) {
	meta := slim.MetaOf(obj)
	key := meta.Key()
	if u := slim.UndecodedOf(obj); u != (slim.Undecoded{}) {
		l.markUnreadable(key, unreadable{fields: u, err: u.DecodeError()})
	} else if len(l.unreadable) > 0 {
		l.clearUnreadable(key)
	}
	n, _ := l.nodes.Get(key)
	if n != nil {
		meta.Name = n.meta().Name // equal, and its bytes are kept by the map anyhow
	}
	switch {
	case n == nil:
		n = &node[P]{}
		l.nodes.Set(key, n)
		fallthrough
	case n.deleted:
		for _, s := range l.subs {
			if !s.passed(n) && !s.hasSeen(n) {
				s.recordGapOf(n)
			}
		}
		n.deleted = false
		n.born = l.seq + 1
		l.live++
		n.obj = obj
		l.index(n)
	case n.meta().ResourceVersion == meta.ResourceVersion && slim.CutOf(n.obj) == slim.CutOf(obj):
		return
	default:
		old := n.obj
		n.obj = obj
		l.reindex(n, old)
	}
	l.touch(n)
}

// Remove makes the key's node a tombstone, or takes it out at once if no
// subscription has seen it.
func (l *Log[P]) Remove(key slim.Key, at slim.Revision) {
	if len(l.unreadable) > 0 {
		l.clearUnreadable(key)
	}
	defer l.Advance(at)
	n, _ := l.nodes.Get(key)
	if n == nil || n.deleted {
		return
	}
	n.deleted = true
	l.live--
	for _, s := range l.subs {
		s.dropInitial(n)
	}
	l.unindex(n)
	if n.isUnseen() {
		l.recordGap()
		l.drop(n)
		return
	}
	l.touch(n)
}

// Replace makes objs the complete state at this revision, together with the keys
// that have not changed. What could not be read keeps the state it had.
func (l *Log[P]) Replace(objs []P, unchanged []slim.Key, undecoded map[slim.Key]error, at slim.Revision) {
	slices.SortFunc(objs, func(a, b P) int {
		return cmp.Compare(slim.MetaOf(a).ResourceVersion, slim.MetaOf(b).ResourceVersion)
	})
	gone := make(map[slim.Key]struct{}, l.live)
	for key, n := range l.nodes.All() {
		if !n.deleted {
			gone[key] = struct{}{}
		}
	}
	for _, obj := range objs {
		delete(gone, slim.MetaOf(obj).Key())
		l.Put(obj)
	}
	for _, key := range unchanged {
		delete(gone, key)
	}
	for key := range undecoded {
		delete(gone, key)
		if key == unknownKey {
			clear(gone) // it could be any of them
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(gone), compareKeys) {
		l.Remove(key, at)
	}
	l.replaceUnreadable(undecoded)
	l.revision = at // may be lower than it was, after a restore of the server
	if l.IsSynced() {
		l.recordGap() // what came and went since the list before was never here
	}
	l.Complete()
	l.Advance(at)
}

// recordGap has all subscriptions know that objects may have come and gone unseen.
func (l *Log[P]) recordGap() {
	for _, s := range l.subs {
		s.recordGap()
	}
}

// Complete marks the initial state as complete.
func (l *Log[P]) Complete() {
	if l.IsSynced() {
		return
	}
	close(l.synced)
	l.health.SetOK("synced")
	for _, s := range l.subs {
		s.countInitial()
		s.wakeUp()
	}
}

// IsSynced reports whether the initial state is complete.
func (l *Log[P]) IsSynced() bool { return isClosed(l.synced) }

// Ended is closed when the list is closed.
func (l *Log[P]) Ended() <-chan struct{} { return l.ended }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// touch gives n the next number and moves it to the tail.
func (l *Log[P]) touch(n *node[P]) {
	for _, s := range l.subs {
		if s.passed(n) {
			s.pending++
		}
	}
	l.unlink(n)
	l.seq++
	n.seq = l.seq
	n.prev = l.tail
	if l.tail == nil {
		l.head = n
	} else {
		l.tail.next = n
	}
	l.tail = n
	for _, s := range l.subs {
		if s.next == nil {
			s.next = n
		}
		if s.pending > 0 {
			s.wakeUp()
		}
	}
}

// unlink takes n out of the list, if it is in, and moves positions off it.
func (l *Log[P]) unlink(n *node[P]) {
	if n.prev == nil && l.head != n {
		return
	}
	for _, s := range l.subs {
		s.advancePast(n)
	}
	if n.prev == nil {
		l.head = n.next
	} else {
		n.prev.next = n.next
	}
	if n.next == nil {
		l.tail = n.prev
	} else {
		n.next.prev = n.prev
	}
	n.prev, n.next = nil, nil
}

// drop forgets a deleted key.
func (l *Log[P]) drop(n *node[P]) {
	for _, s := range l.subs {
		if !s.passed(n) {
			s.pending--
			s.recordGapOf(n)
		}
	}
	l.unlink(n)
	l.nodes.Delete(n.meta().Key())
}

// unknownKey is the key of objects of which not even the name can be decoded.
var unknownKey slim.Key

func compareKeys(a, b slim.Key) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func (n *node[P]) meta() *slim.Meta { return slim.MetaOf(n.obj) }

func (n *node[P]) isUnseen() bool { return n.seen == 0 && n.overflow == 0 }

// Close ends all subscriptions.
func (l *Log[P]) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if isClosed(l.ended) {
		return
	}
	close(l.ended)
	for _, s := range l.subs {
		s.wakeUp()
	}
}
