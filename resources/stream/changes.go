// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// changes is the change list of a stream: one node per key, in the order of
// their last change. An update moves its node to the tail. A subscriber is a
// position in the list, so all that it has not seen yet is behind that position,
// newest state only, and a slow one costs nothing. Nodes of deleted keys stay as
// tombstones as long as a subscriber owes them a Delete.
//
// Everything is under one lock; nothing here blocks, starts a goroutine or calls
// foreign code (index functions excepted), so schedules of it can be replayed in
// tests step by step.
type changes[T any] struct {
	mu         sync.Mutex
	nodes      slim.KeyMap[*node[T]]
	head, tail *node[T]
	seq        uint64 // of the last change
	live       int    // nodes that are not tombstones
	revision   slim.Revision
	synced     chan struct{} // closed when the initial state is complete
	unreadable map[slim.Key]error
	subs       []*subscription[T]
	slots      uint64 // bits of node.seen that are taken
	indexes    map[buildable[T]]*builtIndex[T]
	waiters    []*waiter
	closed     bool
	ended      chan struct{} // closed with closed
	health     *conditions
	now        func() time.Time
}

// node is a key in the change list.
type node[T any] struct {
	prev, next *node[T]
	obj        *T     // newest state; the last one of a tombstone
	seq        uint64 // position: number of its last change
	born       uint64 // number of the change that brought the key
	seen       uint64 // bit per subscription that was given an Upsert of it
	beyond     uint32 // subscriptions without a bit that were given one
	deleted    bool
}

func newChanges[T any](health *conditions) *changes[T] {
	return &changes[T]{
		synced:     make(chan struct{}),
		ended:      make(chan struct{}),
		unreadable: map[slim.Key]error{},
		indexes:    map[buildable[T]]*builtIndex[T]{},
		health:     health,
		now:        time.Now,
	}
}

// unlockAndReport ends a critical section that may have changed the health:
// health reporters are foreign code and run without the lock.
func (c *changes[T]) unlockAndReport() {
	c.mu.Unlock()
	c.health.flush()
}

// upsert takes over a new state of an object. A state with the resourceVersion
// that is known already is no change.
func (c *changes[T]) upsert(obj *T) {
	c.put(obj)
	c.advance(slim.MetaOf(obj).ResourceVersion)
}

// put is upsert of a state that says nothing about how far the server is.
func (c *changes[T]) put(obj *T) {
	meta := slim.MetaOf(obj)
	key := meta.Key()
	if len(c.unreadable) > 0 {
		c.canRead(key)
	}
	n, _ := c.nodes.Get(key)
	if n != nil {
		meta.Name = n.meta().Name // equal, and its bytes are kept by the map anyhow
	}
	var old *T
	switch {
	case n == nil:
		n = &node[T]{}
		c.nodes.Set(key, n)
		fallthrough
	case n.deleted:
		n.deleted = false
		n.born = c.seq + 1
		c.live++
	case n.meta().ResourceVersion == meta.ResourceVersion:
		return
	default:
		old = n.obj
	}
	n.obj = obj
	c.touch(n)
	c.reindex(n, old, obj)
}

// remove makes the key's node a tombstone, or takes it out at once if no
// subscription has seen it.
func (c *changes[T]) remove(key slim.Key, at slim.Revision) {
	if len(c.unreadable) > 0 {
		c.canRead(key)
	}
	defer c.advance(at)
	n, _ := c.nodes.Get(key)
	if n == nil || n.deleted {
		return
	}
	n.deleted = true
	c.live--
	for _, s := range c.subs {
		s.forgetInitial(n)
	}
	c.reindex(n, n.obj, nil)
	if n.unseen() {
		c.drop(n)
		return
	}
	c.touch(n)
}

// cannotRead notes an object that is there and could not be decoded. It keeps the
// state it had.
func (c *changes[T]) cannotRead(key slim.Key, err error) {
	c.unreadable[key] = err
	c.health.later("unreadable", fmt.Errorf("%d objects cannot be decoded, the last one is %q: %w", len(c.unreadable), key, err))
}

// canRead notes that the object is readable, or gone.
func (c *changes[T]) canRead(key slim.Key) {
	delete(c.unreadable, key)
	if len(c.unreadable) == 0 {
		c.health.later("unreadable", nil)
	}
}

// replace makes objs the complete state at this revision, together with the keys
// that have not changed. What could not be read keeps the state it had.
func (c *changes[T]) replace(objs []*T, unchanged []slim.Key, unreadable map[slim.Key]error, at slim.Revision) {
	slices.SortFunc(objs, func(a, b *T) int {
		return cmp.Compare(slim.MetaOf(a).ResourceVersion, slim.MetaOf(b).ResourceVersion)
	})
	gone := make(map[slim.Key]struct{}, c.live)
	for key, n := range c.nodes.All() {
		if !n.deleted {
			gone[key] = struct{}{}
		}
	}
	for _, obj := range objs {
		delete(gone, slim.MetaOf(obj).Key())
		c.put(obj)
	}
	for _, key := range unchanged {
		delete(gone, key)
	}
	for key := range unreadable {
		delete(gone, key)
		if key == nobody {
			clear(gone) // it could be any of them
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(gone), compareKeys) {
		c.remove(key, at)
	}
	clear(c.unreadable)
	for key, err := range unreadable {
		c.cannotRead(key, err)
	}
	if len(unreadable) == 0 {
		c.health.later("unreadable", nil)
	}
	c.revision = at // may be lower than it was, after a restore of the server
	c.complete()
	c.advance(at)
}

// complete marks the initial state as complete.
func (c *changes[T]) complete() {
	if c.isSynced() {
		return
	}
	close(c.synced)
	c.health.fine("synced")
	for _, s := range c.subs {
		s.begin()
		s.signal()
	}
}

// seen is the revision up to which changes were told.
func (c *changes[T]) seen() slim.Revision {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.revision
}

func (c *changes[T]) isSynced() bool { return isClosed(c.synced) }

func (c *changes[T]) hasEnded() bool { return isClosed(c.ended) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// touch gives n the next number and moves it to the tail.
func (c *changes[T]) touch(n *node[T]) {
	for _, s := range c.subs {
		if s.passed(n) {
			s.pending++
		}
	}
	c.unlink(n)
	c.seq++
	n.seq = c.seq
	n.prev = c.tail
	if c.tail == nil {
		c.head = n
	} else {
		c.tail.next = n
	}
	c.tail = n
	for _, s := range c.subs {
		if s.next == nil {
			s.next = n
		}
		if s.idle && s.pending >= s.enough || s.offered == n {
			s.signal()
		}
	}
}

// unlink takes n out of the list, if it is in, and moves positions off it.
func (c *changes[T]) unlink(n *node[T]) {
	if n.prev == nil && c.head != n {
		return
	}
	for _, s := range c.subs {
		s.stepOver(n)
	}
	if n.prev == nil {
		c.head = n.next
	} else {
		n.prev.next = n.next
	}
	if n.next == nil {
		c.tail = n.prev
	} else {
		n.next.prev = n.prev
	}
	n.prev, n.next = nil, nil
}

// drop forgets a deleted key.
func (c *changes[T]) drop(n *node[T]) {
	for _, s := range c.subs {
		if !s.passed(n) {
			s.pending--
		}
	}
	c.unlink(n)
	c.nodes.Delete(n.meta().Key())
}

// nobody is the key of objects so broken that they do not even say who they are.
var nobody slim.Key

func compareKeys(a, b slim.Key) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func (n *node[T]) meta() *slim.Meta { return slim.MetaOf(n.obj) }

func (n *node[T]) unseen() bool { return n.seen == 0 && n.beyond == 0 }

// close ends all subscriptions.
func (c *changes[T]) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	close(c.ended)
	for _, s := range c.subs {
		s.signal()
	}
}
