// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package changelog

import (
	"context"
	"fmt"
	"slices"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// waiter is a call of Await.
type waiter struct {
	key      slim.Key
	revision slim.Revision
	gone     slim.UID // in place of the revision
	done     chan struct{}
}

// AwaitSync returns when the initial state is complete. The error is the
// context's, with the conditions that keep it from being so, or ErrClosed.
func (l *Log[P]) AwaitSync(ctx context.Context) error {
	select {
	case <-l.synced:
	case <-l.ended:
	case <-ctx.Done():
	}
	switch {
	case isClosed(l.ended):
		return ErrClosed
	case !l.IsSynced():
		return fmt.Errorf("not synced%s: %w", l.health.Why(), context.Cause(ctx))
	}
	return nil
}

// AwaitRevision is Await of all objects.
func (l *Log[P]) AwaitRevision(ctx context.Context, revision slim.Revision) error {
	return l.Await(ctx, unknownKey, revision)
}

// Await returns when the object is shown as of the revision, and the initial state
// is complete. The error is the context's, or ErrClosed.
func (l *Log[P]) Await(ctx context.Context, key slim.Key, revision slim.Revision) error {
	if err := l.await(ctx, &waiter{key: key, revision: revision}); err != nil {
		return fmt.Errorf("waiting for resourceVersion %s of %q%s: %w", revision, key, l.health.Why(), err)
	}
	return nil
}

// AwaitDeletion returns when the object with the uid is not shown any more. The error
// is as that of Await.
func (l *Log[P]) AwaitDeletion(ctx context.Context, key slim.Key, uid slim.UID) error {
	if err := l.await(ctx, &waiter{key: key, gone: uid}); err != nil {
		return fmt.Errorf("waiting for the deletion of %q%s: %w", key, l.health.Why(), err)
	}
	return nil
}

// await returns when the list is as the waiter wants it.
func (l *Log[P]) await(ctx context.Context, w *waiter) error {
	w.done = make(chan struct{})
	l.mu.Lock()
	if l.shows(w) {
		l.mu.Unlock()
		return nil
	}
	l.waiters = append(l.waiters, w)
	l.mu.Unlock()
	err := ErrClosed
	select {
	case <-w.done:
		return nil
	case <-l.ended:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	l.mu.Lock()
	l.waiters = slices.DeleteFunc(l.waiters, func(other *waiter) bool { return other == w })
	l.mu.Unlock()
	return err
}

// shows reports whether the state of the waiter's key is recent enough. Changes
// come in the order of their revisions, so a later one of any key will do.
func (l *Log[P]) shows(w *waiter) bool {
	if !l.IsSynced() {
		return false
	}
	obj, exists := l.Current(w.key)
	if !w.gone.IsZero() {
		return !exists || slim.MetaOf(obj).UID != w.gone
	}
	if l.revision >= w.revision {
		return true
	}
	return exists && slim.MetaOf(obj).ResourceVersion >= w.revision
}

// Advance records that the list is complete up to a revision, and ends the calls
// that waited for it. It is called at the end of every change, with the lock held.
func (l *Log[P]) Advance(to slim.Revision) {
	l.revision = max(l.revision, to)
	if len(l.waiters) == 0 {
		return
	}
	l.waiters = slices.DeleteFunc(l.waiters, func(w *waiter) bool {
		if !l.shows(w) {
			return false
		}
		close(w.done)
		return true
	})
}
