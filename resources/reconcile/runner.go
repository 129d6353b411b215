// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/dryrun"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/internal/workers"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/panics"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/health"
)

// runner runs a controller.
type runner struct {
	reconciler Reconciler
	sources    []source
	queue      *Queue[slim.Key]
	objects    *panics.Objects // those that changed

	awaitPredecessors func(context.Context) error

	mapping sync.Mutex // held by the functions that map changes, and Synced

	mu      sync.Mutex // guards the fields below
	written map[slim.Key][]write
	gaps    map[schema.GroupVersionResource]slim.Revision // up to which a source may have lost objects that came and went
}

// write is a write that its source may not show yet.
type write struct {
	source   source
	revision slim.Revision
	deleted  slim.UID    // in place of the revision
	trigger  k8s.Trigger // the object
	late     bool        // a Reconcile has waited for it in vain
}

// await returns once the source shows the write.
func (w *write) await(ctx context.Context) error {
	if w.deleted.IsZero() {
		return w.source.reach(ctx, w.revision)
	}
	return w.source.reachDeletion(ctx, slim.Key{Namespace: w.trigger.Namespace, Name: w.trigger.Name}, w.deleted)
}

// isIn reports whether what the write has stored may have come and gone in a gap.
func (w *write) isIn(of schema.GroupVersionResource, until slim.Revision) bool {
	return w.deleted.IsZero() && w.source.resource() == of && w.revision <= until
}

// staleLimit is how long a Reconcile waits for the stores to show what the key wrote before. Beyond that the stream is
// failing, which its health shows, and k8s.Update reads the object anyway.
const staleLimit = 5 * time.Second

func newRunner(s Deps, reconciler Reconciler, sources []source) *runner {
	r := &runner{
		reconciler: reconciler, sources: sources, objects: s.ObjectsOf("watch"), written: map[slim.Key][]write{}, gaps: map[schema.GroupVersionResource]slim.Revision{},
		awaitPredecessors: func(context.Context) error { return nil },
	}
	var opts []Option
	if c, ok := reconciler.(interface{ QueueOptions() []Option }); ok {
		opts = c.QueueOptions()
	}
	r.queue = NewQueue(s, "reconcile", r.reconcile, opts...)
	for _, source := range sources {
		if l, ok := source.(interface{ load() dryrun.Load }); ok {
			s.Plan.Observe(l.load)
		}
	}
	r.queue.missingJob.jobStarted() // by this runner, once all sources are synced
	return r
}

// watchGrace is how long watches have to end: longer than the workers of the queue, which runs beside them.
const watchGrace = workers.Grace + time.Second

// run returns an error of what comes before the watches, that of ctx, or what it leaves behind.
func (r *runner) run(ctx context.Context) error {
	if err := r.awaitPredecessors(ctx); err != nil {
		return err
	}
	if c, ok := r.reconciler.(interface{ Open(context.Context) error }); ok {
		if err := c.Open(ctx); err != nil {
			return err
		}
	}
	var unsynced sync.WaitGroup
	var all []workers.Worker
	for _, s := range r.sources {
		unsynced.Add(1)
		all = append(all, workers.Worker{Doing: s.doing, Run: func(ctx context.Context) {
			synced := sync.OnceFunc(unsynced.Done)
			defer synced()
			s.watch(ctx, r, synced)
		}})
	}
	all = append(all, workers.Worker{Doing: func() string { return "watch" }, Run: func(ctx context.Context) { r.objects.Retry(ctx, &r.mapping) }})
	var left error
	all = append(all, workers.Worker{Doing: func() string { return r.queue.rule }, Run: func(ctx context.Context) {
		unsynced.Wait()
		if ctx.Err() == nil {
			r.synced(ctx)
			left = r.queue.Run(ctx)
		}
	}})
	if err := workers.Run(ctx, watchGrace, all...); err != nil {
		return err
	}
	return cmp.Or(left, ctx.Err())
}

// synced calls the method of that name.
func (r *runner) synced(ctx context.Context) {
	c, ok := r.reconciler.(interface {
		Synced(context.Context) []slim.Key
	})
	if !ok {
		return
	}
	r.mapping.Lock()
	defer r.mapping.Unlock()
	_ = r.objects.Run(func() error {
		for _, key := range c.Synced(ctx) {
			r.queue.Add(key)
		}
		return nil
	})
}

func (r *runner) reconcile(ctx context.Context, key slim.Key) error {
	if err := r.awaitWritten(ctx, key); err != nil {
		return err
	}
	result, err := r.reconciler.Reconcile(k8s.ObserveWrites(ctx, func(ref k8s.Ref, revision uint64) {
		r.recordWrite(key, ref, slim.Revision(revision))
	}), key)
	if r.isGone(key, err) {
		result, err = Result{RequeueAfter: recheckInterval, Reason: err.Error()}, nil
	}
	if err != nil {
		return err
	}
	if result.Reason != "" {
		explain.SetReason(ctx, result.Reason)
	}
	if result.RequeueAfter > 0 {
		return RequeueAfter(result.RequeueAfter)
	}
	return nil
}

// isGone reports whether err says that the watched object with the key does not exist, or is another one.
func (r *runner) isGone(key slim.Key, err error) bool {
	return slices.ContainsFunc(r.sources, func(s source) bool {
		return k8s.IsNotFound(err, k8s.Ref{Resource: s.resource(), Namespace: key.Namespace, Name: key.Name})
	})
}

// recordWrite keeps the revision of a write to a kind that is watched, until the key is reconciled with what it wrote.
func (r *runner) recordWrite(key slim.Key, ref k8s.Ref, revision slim.Revision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sources {
		if revision == 0 && ref.UID == "" || s.resource() != ref.Resource {
			continue
		}
		w := write{source: s, revision: revision, trigger: k8s.Trigger{Kind: s.kindName(), Namespace: ref.Namespace, Name: ref.Name}}
		if revision == 0 {
			w.deleted = slim.ParseUID(string(ref.UID))
		}
		before := slices.DeleteFunc(r.written[key], func(other write) bool { return other.trigger == w.trigger })
		r.written[key] = append(before, w)
		if w.isIn(ref.Resource, r.gaps[ref.Resource]) {
			r.queue.Add(key, w.trigger)
		}
	}
}

// closeGap enqueues the keys that have not been reconciled with what they wrote, if that is within a gap of a source: an object
// that was created, and deleted by another client before the source showed it, is no change.
func (r *runner) closeGap(of schema.GroupVersionResource, until slim.Revision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gaps[of] = until // lower than before after a restore of the server
	for key, written := range r.written {
		for _, w := range written {
			if w.isIn(of, until) {
				r.queue.Add(key, w.trigger)
			}
		}
	}
}

// awaitWritten waits until the sources show what the key wrote, once for each write.
func (r *runner) awaitWritten(ctx context.Context, key slim.Key) error {
	r.mu.Lock()
	written := r.written[key]
	delete(r.written, key)
	r.mu.Unlock()
	if len(written) == 0 {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, staleLimit)
	defer cancel()
	over, end := context.WithCancel(ctx)
	end()
	written = slices.DeleteFunc(written, func(w write) bool {
		until := limited
		if w.late {
			until = over
		}
		return w.await(until) == nil
	})
	for i := range written {
		written[i].late = true
	}
	if len(written) > 0 {
		r.mu.Lock()
		r.written[key] = append(written, r.written[key]...)
		r.mu.Unlock()
	}
	return ctx.Err()
}

// source is a stream of whatever type, with the keys that its changes concern.
type source interface {
	resource() schema.GroupVersionResource
	kindName() string
	// watch enqueues keys until ctx ends, and calls synced when those of the initial state are.
	watch(ctx context.Context, r *runner, synced func())
	reach(context.Context, slim.Revision) error
	reachDeletion(context.Context, slim.Key, slim.UID) error
	// doing is what watch is doing, for the report of one that does not end.
	doing() string
}

type watched[T any] struct {
	kind   stream.Kind[T]
	stream stream.Resource[T]
	keys   func(stream.Change[T]) []slim.Key
	// setAside takes the place of keys for an object whose handling panicked before; nil: nothing does.
	setAside func(stream.Change[T], error) []slim.Key
	current  atomic.Pointer[slim.Key] // of the object whose change is mapped
}

func newWatched[C, T any](kind stream.Kind[T], r stream.Resource[T], c C, keys func(C, stream.Change[T]) []slim.Key) *watched[T] {
	return &watched[T]{kind: kind, stream: r, keys: func(ch stream.Change[T]) []slim.Key { return keys(c, ch) }}
}

func (w *watched[T]) doing() string {
	if key := w.current.Load(); key != nil {
		return fmt.Sprintf("watch of %s, %v", w.kind, *key)
	}
	return fmt.Sprintf("watch of %s", w.kind)
}

func (w *watched[T]) resource() schema.GroupVersionResource { return w.kind.Resource() }

func (w *watched[T]) kindName() string { return w.kind.Name() }

func (w *watched[T]) reach(ctx context.Context, revision slim.Revision) error {
	return w.stream.WaitForRevision(ctx, revision)
}

func (w *watched[T]) reachDeletion(ctx context.Context, key slim.Key, uid slim.UID) error {
	store, err := w.stream.Store(ctx)
	if err != nil {
		return err
	}
	return store.WaitForDeletion(ctx, key, uid)
}

func (w *watched[T]) watch(ctx context.Context, r *runner, synced func()) {
	over := health.ReportBlocked(ctx, w.kind.String(), "the initial state is not complete")
	defer over()
	for batch := range w.stream.Changes(ctx, stream.ReportGaps()) {
		w.enqueue(r, batch.Changes)
		if batch.GapUntil > 0 {
			r.closeGap(w.resource(), batch.GapUntil)
		}
		if batch.Synced {
			over()
			synced()
		}
	}
}

// enqueue adds the keys that changes concern. An object for which the mapping function panics waits, and leaves nothing locked.
func (w *watched[T]) enqueue(r *runner, changes []stream.Change[T]) {
	r.mapping.Lock()
	defer r.mapping.Unlock()
	for _, ch := range changes {
		w.current.Store(&ch.Key)
		add := func(keys []slim.Key) {
			for _, key := range keys {
				r.queue.Add(key, w.trigger(ch))
			}
		}
		err := r.objects.Handle(w.trigger(ch), func() error { add(w.keys(ch)); return nil })
		if err != nil && w.setAside != nil && ch.Kind == stream.Upsert {
			_ = r.objects.Run(func() error { add(w.setAside(ch, err)); return nil })
		}
	}
}

func (w *watched[T]) trigger(ch stream.Change[T]) k8s.Trigger {
	return k8s.Trigger{
		Kind: w.kind.Name(), Namespace: ch.Key.Namespace, Name: ch.Key.Name,
		ResourceVersion: slim.MetaOf(ch.Object).ResourceVersion.String(),
	}
}

// followed is a function that enqueues keys.
type followed struct {
	follow func(context.Context, Enqueue)
}

func (followed) doing() string { return "Follows" }

func (followed) resource() (none schema.GroupVersionResource) { return none }

func (followed) kindName() string { return "" }

func (followed) reach(context.Context, slim.Revision) error { return nil }

func (followed) reachDeletion(context.Context, slim.Key, slim.UID) error { return nil }

func (f followed) watch(ctx context.Context, r *runner, synced func()) {
	synced()
	f.follow(ctx, func(key slim.Key, triggers ...k8s.Trigger) { r.queue.Add(key, triggers...) })
}
