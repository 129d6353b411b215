// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reconcile

import (
	"context"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/job"
)

// Reconciler brings the object with a key to its desired state. An error that says that the watched object with the key
// is NotFound is no failure: its deletion is to come, and until then the key is requeued every second. A Reconciler may
// have further methods:
//
//   - Open(context.Context) error is called before anything is watched, for stores, and again if it fails.
//   - QueueOptions() []Option is called once, before Open, for the workers and the back-off of the queue.
//   - Synced(context.Context) []slim.Key is called once, when all watches are synced and before the first Reconcile.
//     The keys it returns are reconciled.
type Reconciler interface {
	Reconcile(ctx context.Context, key slim.Key) (Result, error)
}

// Result is what a Reconcile without an error returns.
type Result struct {
	// RequeueAfter, if positive, has the key reconciled again after that time. It is no failure.
	RequeueAfter time.Duration
	// Reason is why nothing was written, for the explain command.
	Reason string
}

// Controller declares the controller of its module: newController is a constructor of C, which is private to the
// module. The permissions to list and watch follow from For and Watches, others from Writes. A module has one.
//
//   - Changes are mapped to keys in their order, one at a time. The object that changed is the trigger of what its keys
//     write.
//   - Keys are reconciled once all watches are synced, each by one worker at a time, as a [Queue] does.
//   - The writes of a Reconcile to a watched kind are in its store before the key is reconciled again.
func Controller[C Reconciler](newController any, opts ...ControllerOption[C]) cell.Cell {
	d := &declaration[C]{}
	for _, o := range opts {
		o(d)
	}
	cells := append(d.cells,
		cell.ProvidePrivate(newController, cell.Made("reconcile.Controller", d.constructor())),
		cell.Job("reconcile", cell.Made("reconcile.Controller", func(r *runner) job.Job { return job.OneShot(r.run, job.Retry(time.Second, time.Minute)) })),
	)
	return cell.Set(cells...)
}

// ControllerOption is a part of the declaration of a controller.
type ControllerOption[C any] func(*declaration[C])

type declaration[C any] struct {
	cells        []cell.Cell
	sources      []sourceOf[C]
	follows      []func(C, context.Context, Enqueue)
	predecessors []predecessor
}

// sourceOf creates a source from a stream of the given type.
type sourceOf[C any] struct {
	stream reflect.Type
	source func(c C, stream any) source
}

// constructor is a function of the controller, the dependencies and the streams, of whatever types, that returns a
// *runner.
func (d *declaration[C]) constructor() any {
	in := []reflect.Type{reflect.TypeFor[C](), reflect.TypeFor[Deps]()}
	for _, s := range d.sources {
		in = append(in, s.stream)
	}
	in = append(in, parameters(d.predecessors)...)
	out := []reflect.Type{reflect.TypeFor[*runner]()}
	return reflect.MakeFunc(reflect.FuncOf(in, out, false), func(args []reflect.Value) []reflect.Value {
		c := args[0].Interface().(C)
		var sources []source
		for i, s := range d.sources {
			sources = append(sources, s.source(c, args[2+i].Interface()))
		}
		streams := len(sources)
		for _, follow := range d.follows {
			sources = append(sources, followed{func(ctx context.Context, enqueue Enqueue) { follow(c, ctx, enqueue) }})
		}
		r := newRunner(args[1].Interface().(Deps), any(c).(Reconciler), sources)
		r.awaitPredecessors = bind(d.predecessors, args[2+streams:])
		return []reflect.Value{reflect.ValueOf(r)}
	}).Interface()
}

// For reconciles each object of a kind that changes or is deleted, by its key.
func For[C, T any](kind stream.Kind[T]) ControllerOption[C] {
	return Watches(kind, func(_ C, ch stream.Change[T]) []slim.Key { return []slim.Key{ch.Key} })
}

// Watches reconciles the keys that a change of a kind maps to.
func Watches[C, T any](kind stream.Kind[T], keys func(C, stream.Change[T]) []slim.Key) ControllerOption[C] {
	return watches(kind, kind.Permissions(), func(c C, r stream.Resource[T]) source { return newWatched(kind, r, c, keys) })
}

// WatchesModel is Watches for a function that changes a model which objects share, such as that of an allocator, under panics.Sharing. When it
// has panicked for an object the module is rebuilt, and setAside takes the place of keys for that object until its pause is over: what the object
// may have must not be given to others.
func WatchesModel[C, T any](kind stream.Kind[T], keys func(C, stream.Change[T]) []slim.Key, setAside func(C, stream.Change[T], error) []slim.Key) ControllerOption[C] {
	return watches(kind, kind.Permissions(), func(c C, r stream.Resource[T]) source {
		w := newWatched(kind, r, c, keys)
		w.setAside = func(ch stream.Change[T], why error) []slim.Key { return setAside(c, ch, why) }
		return w
	})
}

func watches[C, T any](kind stream.Kind[T], permissions cell.Cell, newSource func(C, stream.Resource[T]) source) ControllerOption[C] {
	return func(d *declaration[C]) {
		d.cells = append(d.cells, permissions)
		d.sources = append(d.sources, sourceOf[C]{reflect.TypeFor[stream.Resource[T]](), func(c C, r any) source {
			return newSource(c, r.(stream.Resource[T]))
		}})
	}
}

// Enqueue has a key reconciled. The triggers are part of the cause of its writes.
type Enqueue func(key slim.Key, triggers ...k8s.Trigger)

// Follows reconciles keys that do not follow from a stream of the controller's own: follow, a method of the controller,
// enqueues them until ctx ends. Nothing else waits for it, so that keys are reconciled before it has enqueued any.
func Follows[C any](follow func(c C, ctx context.Context, enqueue Enqueue)) ControllerOption[C] {
	return func(d *declaration[C]) { d.follows = append(d.follows, follow) }
}

// Writes declares that objects of a resource are updated with k8s.Update.
func Writes[C any](resource schema.GroupVersionResource, subresources ...string) ControllerOption[C] {
	return func(d *declaration[C]) {
		d.cells = append(d.cells, k8s.RBAC(k8s.Allow("get,update", resource.GroupResource())))
		for _, sub := range subresources {
			of := resource.GroupResource()
			of.Resource += "/" + sub
			d.cells = append(d.cells, k8s.RBAC(k8s.Allow("update", of)))
		}
	}
}
