// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// Store reads the state that a stream keeps. A handle counts as a use of the
// stream until the context it was asked for with ends; after that it shows what
// was there last. Its methods are safe for concurrent use. Objects are shared:
// read them, never change them.
type Store[T any] struct {
	changes *changes[T]
	indexes map[buildable[T]]struct{} // that the handle uses, nil once released; under the lock of changes
}

// Get returns the object with this key, and whether there is one.
func (s *Store[T]) Get(key slim.Key) (obj *T, ok bool) {
	s.changes.mu.Lock()
	defer s.changes.mu.Unlock()
	n, _ := s.changes.nodes.Get(key)
	if n == nil || n.deleted {
		return nil, false
	}
	return n.obj, true
}

// Len returns the number of objects.
func (s *Store[T]) Len() int {
	s.changes.mu.Lock()
	defer s.changes.mu.Unlock()
	return s.changes.live
}

// All yields all objects as they are at the moment the loop begins, in the order
// of their last change. Writes go on meanwhile.
func (s *Store[T]) All() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		s.changes.mu.Lock()
		objs := make([]*T, 0, s.changes.live)
		for n := s.changes.head; n != nil; n = n.next {
			if !n.deleted {
				objs = append(objs, n.obj)
			}
		}
		s.changes.mu.Unlock()
		for _, obj := range objs {
			if !yield(obj) {
				return
			}
		}
	}
}

// Synced reports whether the initial state is complete.
func (s *Store[T]) Synced() bool { return s.changes.isSynced() }

// Revision returns the resourceVersion up to which the store is complete.
func (s *Store[T]) Revision() slim.Revision { return s.changes.seen() }

// Unreadable returns the keys of objects that are on the server but could not be
// decoded. They are in the store with the last state that could be, or not at
// all: who deletes what is not in the store looks here first.
func (s *Store[T]) Unreadable() []slim.Key {
	s.changes.mu.Lock()
	defer s.changes.mu.Unlock()
	return s.changes.unreadableKeys()
}

func (c *changes[T]) unreadableKeys() []slim.Key {
	keys := make([]slim.Key, 0, len(c.unreadable))
	for key := range c.unreadable {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, compareKeys)
	return keys
}

// WaitFor returns when the store shows the object as it was at this revision or
// later: pass the resourceVersion that a write returned to read your own write.
// It waits for this object only. The error is the context's, or ErrClosed.
func (s *Store[T]) WaitFor(ctx context.Context, key slim.Key, revision slim.Revision) error {
	return s.changes.await(ctx, key, revision)
}

// await returns when the object is shown as of the revision; nobody stands for
// all objects.
func (c *changes[T]) await(ctx context.Context, key slim.Key, revision slim.Revision) error {
	c.mu.Lock()
	w := &waiter{key: key, revision: revision, done: make(chan struct{})}
	if c.shows(w) {
		c.mu.Unlock()
		return nil
	}
	c.waiters = append(c.waiters, w)
	c.mu.Unlock()
	err := ErrClosed
	select {
	case <-w.done:
		return nil
	case <-c.ended:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	c.mu.Lock()
	c.waiters = slices.DeleteFunc(c.waiters, func(other *waiter) bool { return other == w })
	c.mu.Unlock()
	return fmt.Errorf("waiting for resourceVersion %s of %q%s: %w", revision, key, c.health.why(), err)
}

// waiter is a call of WaitFor or Reach.
type waiter struct {
	key      slim.Key
	revision slim.Revision
	done     chan struct{}
}

// shows reports whether the state of the waiter's key is recent enough. Changes
// come in the order of their revisions, so a later one of any key will do.
func (c *changes[T]) shows(w *waiter) bool {
	if !c.isSynced() {
		return false
	}
	if c.revision >= w.revision {
		return true
	}
	n, _ := c.nodes.Get(w.key)
	return n != nil && !n.deleted && n.meta().ResourceVersion >= w.revision
}

// advance takes over a revision and lets those go who waited for it. It is
// called at the end of every change.
func (c *changes[T]) advance(to slim.Revision) {
	c.revision = max(c.revision, to)
	if len(c.waiters) == 0 {
		return
	}
	c.waiters = slices.DeleteFunc(c.waiters, func(w *waiter) bool {
		if !c.shows(w) {
			return false
		}
		close(w.done)
		return true
	})
}

// use returns the built index, building it if this is its first use. The caller
// has the lock.
func (s *Store[T]) use(index buildable[T]) indexed[T] {
	built := s.changes.indexes[index]
	if s.indexes == nil {
		if built != nil {
			return built.indexed
		}
		return index.build(s.changes)
	}
	if built == nil {
		built = &builtIndex[T]{indexed: index.build(s.changes)}
		s.changes.indexes[index] = built
	}
	if _, mine := s.indexes[index]; !mine {
		s.indexes[index] = struct{}{}
		built.users++
	}
	return built.indexed
}

// release drops the indexes that nobody else uses.
func (s *Store[T]) release() {
	s.changes.mu.Lock()
	defer s.changes.mu.Unlock()
	for index := range s.indexes {
		built := s.changes.indexes[index]
		if built.users--; built.users == 0 {
			delete(s.changes.indexes, index)
		}
	}
	s.indexes = nil
}
