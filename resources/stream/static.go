// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/skep-operator/skep/resources/stream/internal/changelog"
	"github.com/skep-operator/skep/resources/stream/internal/conditions"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// Local is a Resource that the program itself feeds: objects that come from
// elsewhere than a watch, and tests. Its subscribers see the same as those of a
// Stream. All methods are safe for concurrent use.
type Local[T any] struct {
	base[T]
	changes *changelog.Log[*T]

	mu    sync.Mutex
	users int
}

var _ Resource[struct{}] = (*Local[struct{}])(nil)

// NewLocal makes an empty resource, not synced. The error says that T is no slim
// type.
func NewLocal[T any](opts ...Option) (*Local[T], error) {
	if _, err := slim.JSON[T](); err != nil {
		return nil, fmt.Errorf("local stream: %w", err)
	}
	o := makeOptions("local", opts)
	l := &Local[T]{changes: changelog.New[*T](conditions.New(o.log, o.health))}
	l.base = base[T]{use: l.use, name: o.name}
	return l, nil
}

func (l *Local[T]) use() (*changelog.Log[*T], func()) {
	l.add(1)
	return l.changes, sync.OnceFunc(func() { l.add(-1) })
}

func (l *Local[T]) add(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users += n
}

// Upsert takes over obj as the new state of its key, sets its ResourceVersion to
// the next revision, and returns that. The caller does not touch obj any more.
func (l *Local[T]) Upsert(obj *T) slim.Revision {
	l.changes.Lock()
	defer l.changes.Unlock()
	revision := l.changes.CurrentRevision() + 1
	slim.MetaOf(obj).ResourceVersion = revision
	l.changes.Upsert(obj)
	return revision
}

// Delete removes the object with this key, if there is one, and returns the
// revision of the change.
func (l *Local[T]) Delete(key slim.Key) slim.Revision {
	l.changes.Lock()
	defer l.changes.Unlock()
	l.changes.Remove(key, l.changes.CurrentRevision()+1)
	return l.changes.CurrentRevision()
}

// Replace takes over objs as the complete state and marks it as synced.
func (l *Local[T]) Replace(objs ...*T) slim.Revision {
	l.changes.Lock()
	defer l.changes.Unlock()
	revision := l.changes.CurrentRevision()
	for _, obj := range objs {
		revision++
		slim.MetaOf(obj).ResourceVersion = revision
	}
	l.changes.Replace(slices.Clone(objs), nil, nil, revision)
	return revision
}

// Synced marks the initial state as complete.
func (l *Local[T]) Synced() {
	l.changes.Lock()
	defer l.changes.Unlock()
	l.changes.Complete()
	l.changes.Advance(0)
}

// Relist implements Resource. What was written is shown already.
func (l *Local[T]) Relist(context.Context) error { return nil }

// WaitForFresh implements Resource, as Relist does.
func (l *Local[T]) WaitForFresh(context.Context) error { return nil }

// Close ends all subscriptions.
func (l *Local[T]) Close() { l.changes.Close() }

// State implements Resource.
func (l *Local[T]) State() State {
	l.mu.Lock()
	state := State{Name: l.name, Running: true, Users: l.users}
	l.mu.Unlock()
	state.add(l.changes.State())
	return state
}
