// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"context"
	"iter"

	"github.com/skep-operator/skep/resources/stream/internal/changelog"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// Store reads the state that a stream keeps. A handle counts as a use of the
// stream until the context it was asked for with ends; after that it shows what
// was there last. Its methods are safe for concurrent use. Objects are shared:
// read them, never change them.
type Store[T any] struct {
	changes *changelog.Log[*T]
	indexes *changelog.Indexes[*T]
}

// Get returns the object with this key, and whether there is one.
func (s *Store[T]) Get(key slim.Key) (obj *T, ok bool) { return s.changes.Get(key) }

// Len returns the number of objects.
func (s *Store[T]) Len() int { return s.changes.Len() }

// All yields all objects as they are at the moment the loop begins, in the order
// of their last change. Writes go on meanwhile.
func (s *Store[T]) All() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for _, obj := range s.changes.Objects() {
			if !yield(obj) {
				return
			}
		}
	}
}

// Synced reports whether the initial state is complete.
func (s *Store[T]) Synced() bool { return s.changes.IsSynced() }

// Revision returns the resourceVersion up to which the store is complete.
func (s *Store[T]) Revision() slim.Revision { return s.changes.Revision() }

// WaitFor returns when the store shows the object as it was at this revision or
// later: pass the resourceVersion that a write returned to read your own write.
// It waits for this object only. The error is the context's, or ErrClosed.
func (s *Store[T]) WaitFor(ctx context.Context, key slim.Key, revision slim.Revision) error {
	return s.changes.Await(ctx, key, revision)
}

// WaitForDeletion returns when the store does not show the object with this uid any
// more: pass that of an object that was deleted. The error is as that of WaitFor.
func (s *Store[T]) WaitForDeletion(ctx context.Context, key slim.Key, uid slim.UID) error {
	return s.changes.AwaitDeletion(ctx, key, uid)
}

// Unreadable returns the keys of objects that are on the server and of which one
// of the fields could not be decoded; without fields, of those of which none
// could. The latter are among the former, too. They are in the store with the
// last state that could be decoded, or not at all: a duty that removes what is
// not in the store looks here first. Paths are as in slim.Undecoded; "" stands for
// any field.
func (s *Store[T]) Unreadable(fields ...string) []slim.Key { return s.changes.Unreadable(fields...) }

// Hides reports whether an object with this key may be on the server although the
// store does not have it, or not as it is now: nothing could be decoded of it, or
// there is an object that does not say which one it is.
func (s *Store[T]) Hides(key slim.Key) bool { return s.changes.Hides(key) }
