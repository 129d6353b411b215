// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mirror

import (
	"context"
	"time"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/job"
)

// Mapper decides what keys hold. It may have a method Open(context.Context) error, which is called before anything is
// watched, for stores, and again if it fails.
type Mapper interface {
	// Desired returns the value of an object's key; nil means that there is none. known is false while that cannot be
	// decided: the key stays as it is. It does no I/O, and is called by one goroutine at a time for changes, and by any
	// for keys in etcd that no change was about.
	Desired(key slim.Key) (value []byte, known bool)
}

// Unmarked is a [Mapper] that may publish nothing: then there is no synced marker.
type Unmarked interface {
	IsUnmarked() bool
}

// OneSource is a [Mapper] whose keys follow one object each, as [kvstore.OneSource] says.
type OneSource interface {
	HasOneSource() bool
}

// Controller declares the mirror of its module: newMapper is a constructor of C, which is private to the module. The
// key of an object is <prefix>/<cluster>/<namespace>/<name>, or <prefix>/<cluster>/<name>. A module has one.
//
//   - A change sets the value of the keys that it maps to, in order, one change at a time. The object that changed is
//     the trigger of the write.
//   - Nothing is set before all watches are synced. Then all values are, and the synced marker is written after them.
//   - Keys of earlier processes that are not desired are deleted, once the streams show all that the API server had
//     when the keys were listed.
//   - A key that cannot be decided is decided again every minute, and so is one for which the mapper panics.
func Controller[C Mapper](prefix string, newMapper any, opts ...Option[C]) cell.Cell {
	d := &declaration[C]{prefix: prefix}
	for _, o := range opts {
		o(d)
	}
	cells := []cell.Cell{
		cell.ProvidePrivate(newMapper, cell.Made("mirror.Controller", d.newMirror)),
		cell.Job("write", cell.Made("mirror.Controller", func(m *mirror[C]) job.Job { return job.OneShot(m.keys.Run) })),
		cell.Job("recheck", cell.Made("mirror.Controller", func(m *mirror[C]) job.Job {
			return job.Timer(m.setUnknown, unknownRetry, job.DelayFirstRun())
		})),
	}
	return cell.Set(append(cells, d.cells...)...)
}

// Option is a part of the declaration of a mirror.
type Option[C Mapper] func(*declaration[C])

type declaration[C Mapper] struct {
	prefix  string
	cells   []cell.Cell
	watches int
}

// For sets the key of each object of a kind that changes or is deleted.
func For[C Mapper, T any](kind stream.Kind[T]) Option[C] {
	return Watches(kind, func(_ C, ch stream.Change[T]) []slim.Key { return []slim.Key{ch.Key} })
}

// Watches sets the keys of the objects that a change of a kind maps to.
func Watches[C Mapper, T any](kind stream.Kind[T], keys func(C, stream.Change[T]) []slim.Key) Option[C] {
	return func(d *declaration[C]) {
		d.watches++
		d.cells = append(d.cells,
			kind.Permissions(),
			// The job takes this value alone: it would serve a stream that its module provides, and start before the mirror.
			cell.ProvidePrivate(cell.Made("mirror.Controller", func(m *mirror[C], r stream.Resource[T]) *watcher[C, T] {
				m.resources = append(m.resources, r)
				return &watcher[C, T]{m, kind, r, keys}
			})),
			cell.Job("watch-"+kind.Resource().Resource, cell.Made("mirror.Controller", func(w *watcher[C, T]) job.Job {
				return job.OneShot(w.run, job.Retry(time.Second, time.Minute))
			})),
		)
	}
}

func (d *declaration[C]) newMirror(mapper C, client kvstore.Client, s reconcile.Deps, shared cluster.Config) (*mirror[C], error) {
	m := &mirror[C]{mapper: mapper, rule: s.RuleOf("mirror"), changes: s.ObjectsOf("watch"), values: s.ObjectsOf("mirror"), unsynced: d.watches, early: map[slim.Key]k8s.Trigger{}, unknown: map[slim.Key]struct{}{}}
	opts := []kvstore.SyncOption{kvstore.OwnedIf(m.isStale, m.awaitFresh)}
	if u, ok := any(mapper).(Unmarked); ok && u.IsUnmarked() {
		opts = append(opts, kvstore.Unmarked())
	}
	if o, ok := any(mapper).(OneSource); ok && o.HasOneSource() {
		opts = append(opts, kvstore.OneSource())
	}
	keys, err := kvstore.NewSyncStore(client, s, d.prefix, shared.ClusterName, opts...)
	m.keys = keys
	return m, err
}

// watcher maps the changes of a stream.
type watcher[C Mapper, T any] struct {
	mirror   *mirror[C]
	kind     stream.Kind[T]
	resource stream.Resource[T]
	keys     func(C, stream.Change[T]) []slim.Key
}

func (w *watcher[C, T]) run(ctx context.Context) error {
	if err := w.mirror.open(ctx); err != nil {
		return err
	}
	over := health.ReportBlocked(ctx, w.kind.String(), "the initial state is not complete")
	defer over()
	for batch := range w.resource.Changes(ctx) {
		w.set(batch)
		if batch.Synced {
			over()
		}
	}
	return ctx.Err()
}

// set sets the keys that changes concern. A panic of the mapper leaves nothing locked.
func (w *watcher[C, T]) set(batch stream.Batch[T]) {
	w.mirror.mu.Lock()
	defer w.mirror.mu.Unlock()
	for _, ch := range batch.Changes {
		trigger := k8s.Trigger{
			Kind: w.kind.Name(), Namespace: ch.Key.Namespace, Name: ch.Key.Name,
			ResourceVersion: slim.MetaOf(ch.Object).ResourceVersion.String(),
		}
		_ = w.mirror.changes.Handle(trigger, func() error { // it has reported the error
			for _, key := range w.keys(w.mirror.mapper, ch) {
				w.mirror.set(key, trigger)
			}
			return nil
		})
	}
	if batch.Synced {
		w.mirror.sourceSynced()
	}
}
