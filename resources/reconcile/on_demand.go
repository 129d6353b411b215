// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reconcile

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/skep-operator/skep/resources/dryrun"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// OnDemand is a kind that a controller watches while keys need it, declared with [WatchesOnDemand]. It is a field of the
// controller; the zero value is ready for use. Its methods are safe for concurrent use.
type OnDemand[T any] struct {
	mu     sync.Mutex
	keys   map[slim.Key]bool
	store  *stream.Store[T] // nil until it is complete
	needed chan struct{}    // closed by the first key; nil: nothing waits for it
	cancel func()           // ends the watch; nil: there is none
}

// Need returns the store of the kind for the Reconcile of a key. The store is nil until the initial state is complete:
// the key is reconciled again then, and nothing is to be written before. The kind is watched until Drop of all such keys.
func (d *OnDemand[T]) Need(key slim.Key) *stream.Store[T] {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.keys == nil {
		d.keys = map[slim.Key]bool{}
	}
	d.keys[key] = true
	if d.needed != nil {
		close(d.needed)
		d.needed = nil
	}
	return d.store
}

// Drop takes back Need, if there was any.
func (d *OnDemand[T]) Drop(key slim.Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.keys, key)
	if len(d.keys) == 0 && d.cancel != nil {
		d.cancel()
		d.cancel, d.store = nil, nil
	}
}

// Needs reports whether a key needs the kind. A change that concerns no such key need not be mapped to any.
func (d *OnDemand[T]) Needs(key slim.Key) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.keys[key]
}

// Keys are the keys that need the kind, in no order. The slice is the caller's.
func (d *OnDemand[T]) Keys() []slim.Key {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.keys))
}

// await waits for the first key. It returns a context that ends when no key needs the kind any more, or nil if ctx ends.
func (d *OnDemand[T]) await(ctx context.Context) context.Context {
	for ctx.Err() == nil {
		needed, started := d.start(ctx)
		if started != nil {
			return started
		}
		select {
		case <-needed:
		case <-ctx.Done():
		}
	}
	return nil
}

// start returns the context of a watch, or what to wait for before there is one.
func (d *OnDemand[T]) start(ctx context.Context) (needed <-chan struct{}, started context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.keys) == 0 {
		d.needed = make(chan struct{})
		return d.needed, nil
	}
	started, d.cancel = context.WithCancel(ctx)
	return nil, started
}

// complete offers the store, and queues the keys that have waited for it.
func (d *OnDemand[T]) complete(ctx context.Context, store *stream.Store[T], queue func(slim.Key)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	d.store = store
	for key := range d.keys {
		queue(key)
	}
}

// state is whether keys need the kind, and whether the store is complete.
func (d *OnDemand[T]) state() (needed, complete bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.keys) > 0, d.store != nil
}

// WatchesOnDemand is Watches of a kind that is watched while keys need it. Other watches do not wait for it, and the permissions
// are optional. The stream is provided with stream.OnDemand, so that no standby runs it.
func WatchesOnDemand[C, T any](kind stream.Kind[T], of func(C) *OnDemand[T], keys func(C, stream.Change[T]) []slim.Key) ControllerOption[C] {
	permissions := k8s.OptionalRBAC(k8s.Allow("list,watch", kind.Resource().GroupResource()))
	return watches(kind, permissions, func(c C, r stream.Resource[T]) source {
		return &watchedOnDemand[T]{newWatched(kind, r, c, keys), of(c)}
	})
}

type watchedOnDemand[T any] struct {
	*watched[T]
	demand *OnDemand[T]
}

func (w *watchedOnDemand[T]) watch(ctx context.Context, r *runner, synced func()) {
	synced()
	for needed := w.demand.await(ctx); needed != nil; needed = w.demand.await(ctx) {
		if w.follow(needed, r); needed.Err() == nil {
			return // the stream is closed
		}
	}
}

// follow enqueues keys until no key needs the kind.
func (w *watchedOnDemand[T]) follow(ctx context.Context, r *runner) {
	store, err := w.stream.Store(ctx)
	if err != nil {
		return
	}
	w.demand.complete(ctx, store, func(key slim.Key) { r.queue.Add(key) })
	for batch := range w.stream.Changes(ctx) {
		w.enqueue(r, batch.Changes)
	}
}

// reach does not wait for a kind that is not watched.
func (w *watchedOnDemand[T]) reach(ctx context.Context, revision slim.Revision) error {
	if _, complete := w.demand.state(); !complete {
		return nil
	}
	return w.watched.reach(ctx, revision)
}

// reachDeletion does not, either.
func (w *watchedOnDemand[T]) reachDeletion(ctx context.Context, key slim.Key, uid slim.UID) error {
	if _, complete := w.demand.state(); !complete {
		return nil
	}
	return w.watched.reachDeletion(ctx, key, uid)
}

// load is what a dry run waits for. While the stream waits for its initial state, that is reported by itself.
func (w *watchedOnDemand[T]) load() (load dryrun.Load) {
	needed, complete := w.demand.state()
	state := w.stream.State()
	if needed && !complete && (!state.Running || state.Synced) {
		load.Busy = append(load.Busy, w.kind.String()+": needed, and not watched yet")
	}
	return load
}
