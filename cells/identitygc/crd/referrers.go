// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crd

import (
	"context"
	"errors"
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/types"

	"github.com/skep-operator/skep/cells/internal/claims"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
)

// referrers are the objects of one kind that reference identities. Their stores have a delay of their own.
type referrers interface {
	kind() string
	// open returns when their store is synced. It is used until ctx ends.
	open(ctx context.Context) error
	// references reports whether one of them references an identity, and counts.
	references(n identity.Number) bool
	// complete fails if the references of some of them cannot be decoded.
	complete() error
	// awaitFresh returns when the store has all writes before the call.
	awaitFresh(ctx context.Context) error
	// watch calls inUse, which does not block, for each identity that becomes referenced.
	watch(ctx context.Context, inUse func(identity.Number)) error
	// ignored is the namespace whose references to most identities do not count, and to how many; "" if there is none.
	ignored() (namespace string, numbers int)
}

// referrersOut provides one kind.
type referrersOut struct {
	cell.Out

	Referrers referrers `group:"users of identities"`
}

// Referrers by identity number.
var (
	byEndpoint = stream.NewIndex("identity", numbersOf(eachEndpoint))
	bySlice    = stream.NewIndex("identities", numbersOf(eachInSlice))
)

// podView has the pods, where they tell which endpoints are real: where the operator makes identities, each is of a pod.
type podView struct{ pods stream.Resource[slim.Pod] }

// newPodView returns nil where agents make identities, too: those of their endpoints count whatever they are.
func newPodView(pods stream.Resource[slim.Pod], c cluster.Config) *podView {
	if c.IdentityManagementMode == "both" {
		return nil
	}
	return &podView{pods}
}

type endpointsIn struct {
	cell.In

	Endpoints stream.Resource[ciliumio.Endpoint]
	Pods      *podView `optional:"true"`
}

func newEndpoints(in endpointsIn) referrersOut {
	return referrersOut{Referrers: &streamReferrers[ciliumio.Endpoint]{
		id: "endpoints", name: "CiliumEndpoints", field: "status.identity", stream: in.Endpoints, index: byEndpoint, each: eachEndpoint, pods: in.Pods,
	}}
}

type slicesIn struct {
	cell.In

	Slices stream.Resource[ciliumio.EndpointSlice]
	Pods   *podView `optional:"true"`
}

func newSlices(in slicesIn) referrersOut {
	return referrersOut{Referrers: &streamReferrers[ciliumio.EndpointSlice]{
		id: "slices", name: "CiliumEndpointSlices", field: "endpoints", stream: in.Slices, index: bySlice, each: eachInSlice, pods: in.Pods,
	}}
}

func eachEndpoint(e *ciliumio.Endpoint, yield func(slim.Key, identity.Number)) {
	if e.Status.Identity != nil {
		addNumber(e.Status.Identity.ID, func(n identity.Number) { yield(e.Key(), n) })
	}
}

func eachInSlice(s *ciliumio.EndpointSlice, yield func(slim.Key, identity.Number)) {
	for i := range s.Endpoints {
		addNumber(s.Endpoints[i].IdentityID, func(n identity.Number) { yield(slim.Key{Namespace: s.Of.String(), Name: s.Endpoints[i].Name}, n) })
	}
}

func numbersOf[T any](each func(*T, func(slim.Key, identity.Number))) func(*T, func(identity.Number)) {
	return func(obj *T, add func(identity.Number)) {
		each(obj, func(_ slim.Key, n identity.Number) { add(n) })
	}
}

// addNumber omits invalid numbers. 0 is an endpoint without an identity yet.
func addNumber(n int64, add func(identity.Number)) {
	if n > 0 && n <= math.MaxUint32 {
		add(identity.Number(n))
	}
}

// streamReferrers are objects of a stream that have identity numbers.
type streamReferrers[T any] struct {
	id     string
	name   string
	field  string // with the numbers
	stream stream.Resource[T]
	index  *stream.Index[T, identity.Number]
	each   func(*T, func(slim.Key, identity.Number)) // endpoints with their numbers
	pods   *podView                                  // nil where all count
	store  *stream.Store[T]
	claims *claims.Claims // nil where all count
}

func (o *streamReferrers[T]) kind() string { return o.id }

func (o *streamReferrers[T]) open(ctx context.Context) (err error) {
	if o.store, err = o.stream.Store(ctx); err != nil || o.pods == nil {
		return err
	}
	pods, err := o.pods.pods.Store(ctx)
	if err != nil {
		return err
	}
	o.claims = claims.New(pods, func(yield func(slim.Key, identity.Number)) {
		for obj := range o.store.All() {
			o.each(obj, yield)
		}
	})
	return nil
}

func (o *streamReferrers[T]) references(n identity.Number) (found bool) {
	if o.claims == nil {
		return stream.CountByIndex(o.store, o.index, n) > 0
	}
	for obj := range stream.ByIndex(o.store, o.index, n) {
		o.each(obj, func(endpoint slim.Key, has identity.Number) {
			found = found || has == n && o.claims.Counts(endpoint, n)
		})
		if found {
			return true
		}
	}
	return false
}

func (o *streamReferrers[T]) ignored() (namespace string, numbers int) { return o.claims.Ignored() }

func (o *streamReferrers[T]) complete() error {
	if hidden := o.store.Unreadable(o.field); len(hidden) > 0 {
		return fmt.Errorf("%s of %d %s cannot be decoded, they may use any identity; repair or delete them, at first %s", o.field, len(hidden), o.name, hidden[0])
	}
	return nil
}

func (o *streamReferrers[T]) awaitFresh(ctx context.Context) error { return o.stream.WaitForFresh(ctx) }

func (o *streamReferrers[T]) watch(ctx context.Context, inUse func(identity.Number)) error {
	for batch := range o.stream.Changes(ctx) {
		for _, change := range batch.Changes {
			if change.Kind == stream.Upsert {
				o.each(change.Object, func(endpoint slim.Key, n identity.Number) {
					if o.claims.Counts(endpoint, n) {
						inUse(n)
					}
				})
			}
		}
	}
	return ctx.Err()
}

// podReferrers are pods, whose identities the duty that creates them provides: they count from the assignment on.
type podReferrers struct{ podsIn }

type podsIn struct {
	cell.In

	Assignments identity.Assignments `optional:"true"`
	Pods        stream.Resource[slim.Pod]
}

func newPods(in podsIn) referrersOut { return referrersOut{Referrers: podReferrers{in}} }

func (podReferrers) kind() string { return "pods" }

func (p podReferrers) open(ctx context.Context) error {
	if p.Assignments == nil {
		return errors.New("no identity is deleted: the options have the operator create identities, and it has no module that does")
	}
	select {
	case <-p.Assignments.Complete():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p podReferrers) references(n identity.Number) bool { return p.Assignments.Wanted(n) }

func (podReferrers) ignored() (namespace string, numbers int) { return "", 0 }

func (p podReferrers) complete() error { return p.Assignments.Whole() }

func (p podReferrers) awaitFresh(ctx context.Context) error { return p.Pods.WaitForFresh(ctx) }

func (p podReferrers) watch(ctx context.Context, inUse func(identity.Number)) error {
	cancel := p.Assignments.Observe(func(pod types.NamespacedName) {
		for n := range p.Assignments.All(pod) {
			inUse(n)
		}
	})
	defer cancel()
	<-ctx.Done()
	return ctx.Err()
}
