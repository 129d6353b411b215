// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identitygc

import (
	"context"
	"errors"
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/types"

	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
)

// users are the objects of one kind that use identities. What is known of them is
// late by its own time.
type users interface {
	kind() string
	// open returns when all of them are known. They are until ctx ends.
	open(ctx context.Context) error
	// use reports whether one of them uses an identity now.
	use(n identity.Number) bool
	// whole fails if there are some that cannot be read: they may use anything.
	whole() error
	// confirm returns when all is known that was written before the call.
	confirm(ctx context.Context) error
	// watch calls see, which does not block, for each identity that comes into use.
	watch(ctx context.Context, see func(identity.Number)) error
}

// usersOut offers one kind. Only those are watched that are offered.
type usersOut struct {
	cell.Out

	Users users `group:"users of identities"`
}

// Who uses an identity, by its number. Nothing else of the users is kept.
var (
	byEndpoint = stream.NewIndex("identity", ofEndpoint)
	bySlice    = stream.NewIndex("identities", ofSlice)
)

func newEndpoints(r stream.Resource[ciliumio.Endpoint]) usersOut {
	return usersOut{Users: &objects[ciliumio.Endpoint]{id: "endpoints", name: "CiliumEndpoints", stream: r, index: byEndpoint, numbers: ofEndpoint}}
}

func newSlices(r stream.Resource[ciliumio.EndpointSlice]) usersOut {
	return usersOut{Users: &objects[ciliumio.EndpointSlice]{id: "slices", name: "CiliumEndpointSlices", stream: r, index: bySlice, numbers: ofSlice}}
}

func ofEndpoint(e *ciliumio.Endpoint, add func(identity.Number)) {
	if e.Status.Identity != nil {
		addNumber(int64(e.Status.Identity.ID), add)
	}
}

func ofSlice(s *ciliumio.EndpointSlice, add func(identity.Number)) {
	for i := range s.Endpoints {
		addNumber(int64(s.Endpoints[i].IdentityID), add)
	}
}

// addNumber leaves out what no identity can be named: 0 is an endpoint that has
// none yet.
func addNumber(n int64, add func(identity.Number)) {
	if n > 0 && n <= math.MaxUint32 {
		add(identity.Number(n))
	}
}

// objects are users that say so themselves.
type objects[T any] struct {
	id      string
	name    string
	stream  stream.Resource[T]
	index   *stream.Index[T, identity.Number]
	numbers func(*T, func(identity.Number))
	store   *stream.Store[T]
}

func (o *objects[T]) kind() string { return o.id }

func (o *objects[T]) open(ctx context.Context) (err error) {
	o.store, err = o.stream.Store(ctx)
	return err
}

func (o *objects[T]) use(n identity.Number) bool {
	return stream.CountByIndex(o.store, o.index, n) > 0
}

func (o *objects[T]) whole() error {
	if hidden := o.store.Unreadable(); len(hidden) > 0 {
		return fmt.Errorf("%d %s cannot be decoded and may use any identity; mend or delete them, %s first", len(hidden), o.name, hidden[0])
	}
	return nil
}

func (o *objects[T]) confirm(ctx context.Context) error { return o.stream.Confirm(ctx) }

func (o *objects[T]) watch(ctx context.Context, see func(identity.Number)) error {
	for batch := range o.stream.Batches(ctx, 256, 0, stream.Named("identitygc")) {
		for _, e := range batch {
			if e.Kind == stream.Upsert {
				o.numbers(e.Object, see)
			}
		}
		batch.Done(nil)
	}
	return ctx.Err()
}

// pods are users of whom the duty tells that makes identities: they use one as soon
// as they are there.
type pods struct{ podsIn }

type podsIn struct {
	cell.In

	Assignments identity.Assignments `optional:"true"`
	Pods        stream.Resource[slim.Pod]
}

func newPods(in podsIn) usersOut { return usersOut{Users: pods{in}} }

func (pods) kind() string { return "pods" }

func (p pods) open(ctx context.Context) error {
	if p.Assignments == nil {
		return errors.New("no identity is deleted: the operator is to make identities, and has no duty that does; add it, or leave identities to agents")
	}
	select {
	case <-p.Assignments.Complete():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p pods) use(n identity.Number) bool { return p.Assignments.Bearers(n) > 0 }

// whole implements users. A pod that cannot be read is no pod to the other duty
// either.
func (pods) whole() error { return nil }

func (p pods) confirm(ctx context.Context) error { return p.Pods.Confirm(ctx) }

func (p pods) watch(ctx context.Context, see func(identity.Number)) error {
	cancel := p.Assignments.Observe(func(pod types.NamespacedName) {
		if n, _ := p.Assignments.Of(pod); n != 0 {
			see(n)
		}
	})
	defer cancel()
	<-ctx.Done()
	return ctx.Err()
}
