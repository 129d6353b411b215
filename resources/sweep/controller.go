// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package sweep

import (
	"context"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/job"
)

// Controller declares the sweep of its module: newController is a constructor of C, which is private to the module.
// The permissions to list, watch and delete the kind follow, and those to list and watch what options name. A module
// has one.
func Controller[C Collector[T], T any](newController any, kind stream.Kind[T], opts ...Option[C]) cell.Cell {
	cells := []cell.Cell{
		cell.Check(cell.Made("sweep.Controller", func() error {
			_, err := deletionTimestamp[T]()
			return err
		})),
		k8s.RBAC(k8s.Allow("list,watch,delete", kind.Resource().GroupResource())),
		k8s.EventRBAC(),
		cell.ProvidePrivate(newController, cell.Made("sweep.Controller", func(c C, s Deps, client k8s.Client, r stream.Resource[T]) (*Objects[T], error) {
			return NewObjects(s, client, kind, r, c)
		})),
		cell.Job("sweep", cell.Made("sweep.Controller", func(o *Objects[T]) job.Job { return job.OneShot(o.Run) })),
	}
	if len(opts) > 0 {
		cells = append(cells, cell.ProvidePrivate(cell.Made("sweep.Controller", func(c C, o *Objects[T]) *target[C] { return &target[C]{o, c} })))
	}
	for _, o := range opts {
		cells = append(cells, o(len(opts) > 1))
	}
	return cell.Set(cells...)
}

// Option adds to what a Controller is declared with. several says that it is not the only one.
type Option[C any] func(several bool) cell.Cell

// target is a sweep of objects of whatever type.
type target[C any] struct {
	objects interface {
		apply(changed k8s.Trigger, inUse func() []slim.Key)
	}
	controller C
}

// Resets has the objects be candidates anew that a change of another kind shows to be in use.
func Resets[C, T any](kind stream.Kind[T], inUse func(C, stream.Change[T]) []slim.Key) Option[C] {
	return func(several bool) cell.Cell {
		name := "watch"
		if several {
			name += "-" + kind.Resource().Resource
		}
		return cell.Set(
			kind.Permissions(),
			// The job takes this value alone: it would serve a stream that its module provides, and start before the sweep.
			cell.ProvidePrivate(cell.Made("sweep.Controller", func(t *target[C], r stream.Resource[T]) *watcher[C, T] {
				return &watcher[C, T]{t, kind, r, inUse}
			})),
			cell.Job(name, cell.Made("sweep.Controller", func(w *watcher[C, T]) job.Job { return job.OneShot(w.run) })),
		)
	}
}

// watcher resets the objects that changes of a stream show to be in use.
type watcher[C, T any] struct {
	target   *target[C]
	kind     stream.Kind[T]
	resource stream.Resource[T]
	inUse    func(C, stream.Change[T]) []slim.Key
}

func (w *watcher[C, T]) run(ctx context.Context) error {
	for batch := range w.resource.Changes(ctx) {
		for _, ch := range batch.Changes {
			w.target.objects.apply(w.kind.Trigger(ch.Object), func() []slim.Key { return w.inUse(w.target.controller, ch) })
		}
	}
	return ctx.Err()
}
