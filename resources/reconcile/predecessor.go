// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reconcile

import (
	"context"
	"reflect"

	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/stream"
)

// AfterPredecessor delays Open, and with it the first Reconcile, until the stream of a kind shows all that earlier
// leaders wrote: for decisions that must not contradict theirs, as those of an allocator. The kind is one of For or
// Watches. See [stream.AwaitPredecessor] for the costs.
func AfterPredecessor[C, T any](kind stream.Kind[T]) ControllerOption[C] {
	return func(d *declaration[C]) {
		d.predecessors = append(d.predecessors, predecessor{reflect.TypeFor[stream.Resource[T]](),
			func(ctx context.Context, r any, h leading.Handover) error {
				return stream.AwaitPredecessor(ctx, r.(stream.Resource[T]), h, kind.Resource())
			}})
	}
}

// predecessor awaits the writes of earlier leaders in a stream of the given type.
type predecessor struct {
	stream reflect.Type
	await  func(ctx context.Context, stream any, h leading.Handover) error
}

// parameters are those of the controller's constructor for the predecessors: streams, each with the hand-over.
func parameters(predecessors []predecessor) (in []reflect.Type) {
	for _, p := range predecessors {
		in = append(in, p.stream, reflect.TypeFor[leading.Handover]())
	}
	return in
}

// bind returns a function that awaits all predecessors, of the values for parameters.
func bind(predecessors []predecessor, args []reflect.Value) func(context.Context) error {
	return func(ctx context.Context) error {
		for i, p := range predecessors {
			if err := p.await(ctx, args[2*i].Interface(), args[2*i+1].Interface().(leading.Handover)); err != nil {
				return err
			}
		}
		return nil
	}
}
