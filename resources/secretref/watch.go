// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretref

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/skep-operator/skep/resources/stream"
)

// Watch follows a stream of a source, and reports whether it misses something.
type Watch[T any] struct {
	stream    stream.Resource[T]
	fields    []string
	optional  bool
	store     atomic.Pointer[stream.Store[T]]
	synced    atomic.Bool
	notServed atomic.Int64 // since when, in Unix nanoseconds
}

// NewWatch returns a watch of a stream. An object whose given fields cannot be decoded may have any references.
func NewWatch[T any](s stream.Resource[T], fields ...string) *Watch[T] {
	return &Watch[T]{stream: s, fields: fields}
}

// Optional has health not report that the initial state is not complete: the CRD may never come.
func (w *Watch[T]) Optional() *Watch[T] {
	w.optional = true
	return w
}

// Follow calls changed for each change, until ctx ends, and synced when changed was called for all that there is.
func (w *Watch[T]) Follow(ctx context.Context, changed func(stream.Change[T]), synced ...func()) {
	if w.optional {
		silent, cancel := context.WithCancel(context.Background()) // that of a job leads to its health
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		ctx = silent
	}
	w.synced.Store(false)
	store, err := w.stream.Store(ctx)
	if err != nil {
		return
	}
	w.store.Store(store)
	for batch := range w.stream.Changes(ctx, stream.WithSubscriberName("references")) {
		for _, ch := range batch.Changes {
			changed(ch)
		}
		if batch.Synced {
			for _, f := range synced {
				f()
			}
			w.synced.Store(true) // what these make of it is complete, too
		}
	}
}

// Initial calls each for the objects of the initial state. It gives up after limit, and as soon as the API server does not serve the kind.
func (w *Watch[T]) Initial(ctx context.Context, limit time.Duration, each func(*T)) {
	bounded, cancel := context.WithTimeout(context.Background(), limit) // health is not to report it
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	go func() {
		for ; bounded.Err() == nil; sleep(bounded, pollInterval) {
			if w.stream.State().NotServed() {
				cancel()
			}
		}
	}()
	store, err := w.stream.Store(bounded)
	if err != nil {
		return
	}
	for obj := range store.All() {
		each(obj)
	}
}

// pollInterval is how often the state of what is waited for is read.
const pollInterval = 50 * time.Millisecond

// sleep waits, at most until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// absentAfter is how long the API server does not serve a kind until that has no objects: a server that is starting does not
// serve custom resources either.
const absentAfter = time.Minute

// Complete returns why there may be objects that changed was not called for.
func (w *Watch[T]) Complete() error {
	state := w.stream.State()
	if state.NotServed() {
		now := time.Now().UnixNano()
		w.notServed.CompareAndSwap(0, now)
		if now-w.notServed.Load() >= int64(absentAfter) {
			return nil
		}
		return fmt.Errorf("%s are not served", state.Name)
	}
	w.notServed.Store(0)
	switch {
	case !w.synced.Load():
		return fmt.Errorf("the initial state of %s is not complete", state.Name)
	case state.ConnectedSince.IsZero():
		return fmt.Errorf("%s cannot be watched at the moment", state.Name)
	}
	if hidden := w.store.Load().Unreadable(w.fields...); len(hidden) > 0 {
		return fmt.Errorf("%d %s cannot be decoded, at first %s: repair or delete it", len(hidden), state.Name, hidden[0])
	}
	return nil
}

// AllComplete joins the errors of several watches.
func AllComplete(watches ...interface{ Complete() error }) error {
	var errs []error
	for _, w := range watches {
		errs = append(errs, w.Complete())
	}
	return errors.Join(errs...)
}
