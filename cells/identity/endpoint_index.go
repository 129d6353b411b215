// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"context"
	"hash/maphash"
	"iter"
	"math"

	"github.com/skep-operator/skep/cells/internal/claims"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// endpointIndex indexes the endpoints of the cluster by the number of their identity. One kind of object is watched for it.
type endpointIndex interface {
	// open returns when the index is synced. It is kept up to date until ctx ends.
	open(ctx context.Context) error
	// has reports whether an endpoint has a number, and counts for it.
	has(n identity.Number) bool
	// ignored is the namespace of whose endpoints most numbers do not count, and how many; "" if there is none.
	ignored() (namespace string, numbers int)
	// undecodable are the objects with numbers of endpoints that cannot be decoded.
	undecodable() []slim.Key
	// with yields the endpoints that have a number. Their names are those of pods.
	with(n identity.Number) iter.Seq[slim.Key]
	// of returns the number that the endpoint of a pod has.
	of(pod slim.Key) (identity.Number, bool)
}

// fromSlices and fromEndpoints select the kind of object.
func fromSlices(c cluster.Config) bool { return c.EnableCiliumEndpointSlice }

func fromEndpoints(c cluster.Config) bool { return c.EndpointCRD() && !c.EnableCiliumEndpointSlice }

// streamIndex is an endpointIndex of objects of a type T.
type streamIndex[T any] struct {
	stream stream.Resource[T]
	index  *stream.Index[T, identity.Number]
	each   func(obj *T, yield func(slim.Key, identity.Number))
	find   func(store *stream.Store[T], pod slim.Key) iter.Seq[*T] // those that may have the endpoint of a pod
	field  string                                                  // that has the numbers
	pods   stream.Resource[slim.Pod]
	store  *stream.Store[T]
	claims *claims.Claims
}

func newEndpointIndex(r stream.Resource[ciliumio.Endpoint], pods stream.Resource[slim.Pod]) endpointIndex {
	return &streamIndex[ciliumio.Endpoint]{stream: r, pods: pods, index: endpointsByNumber, each: eachEndpoint, find: findEndpoint, field: "status.identity"}
}

func newSliceIndex(r stream.Resource[ciliumio.EndpointSlice], pods stream.Resource[slim.Pod]) endpointIndex {
	return &streamIndex[ciliumio.EndpointSlice]{stream: r, pods: pods, index: slicesByNumber, each: eachInSlice, find: findSlices, field: "endpoints"}
}

var (
	endpointsByNumber = stream.NewIndex("identity", numbersOf(eachEndpoint))
	slicesByNumber    = stream.NewIndex("identity", numbersOf(eachInSlice))
)

// slicesByPod finds the slices of endpoints by a hash of their names. It is built when it is first asked.
var slicesByPod = stream.NewIndex("pod", func(s *ciliumio.EndpointSlice, add func(uint64)) {
	for _, e := range s.Endpoints {
		add(hashOf(slim.Key{Namespace: s.Of.String(), Name: e.Name}))
	}
})

var seed = maphash.MakeSeed()

func hashOf(pod slim.Key) uint64 { return maphash.Comparable(seed, pod) }

func findEndpoint(store *stream.Store[ciliumio.Endpoint], pod slim.Key) iter.Seq[*ciliumio.Endpoint] {
	return func(yield func(*ciliumio.Endpoint) bool) {
		if e, ok := store.Get(pod); ok {
			yield(e)
		}
	}
}

func findSlices(store *stream.Store[ciliumio.EndpointSlice], pod slim.Key) iter.Seq[*ciliumio.EndpointSlice] {
	return stream.ByIndex(store, slicesByPod, hashOf(pod))
}

func eachEndpoint(e *ciliumio.Endpoint, yield func(slim.Key, identity.Number)) {
	if e.Status.Identity == nil {
		return
	}
	if n, ok := numberOf(e.Status.Identity.ID); ok {
		yield(e.Key(), n)
	}
}

func eachInSlice(s *ciliumio.EndpointSlice, yield func(slim.Key, identity.Number)) {
	for _, e := range s.Endpoints {
		if n, ok := numberOf(e.IdentityID); ok {
			yield(slim.Key{Namespace: s.Of.String(), Name: e.Name}, n)
		}
	}
}

// numberOf converts the number of an endpoint, and rejects one that is too large.
func numberOf(id int64) (identity.Number, bool) {
	return identity.Number(id), id > 0 && id <= math.MaxUint32
}

func numbersOf[T any](each func(*T, func(slim.Key, identity.Number))) func(*T, func(identity.Number)) {
	return func(obj *T, add func(identity.Number)) {
		each(obj, func(_ slim.Key, n identity.Number) { add(n) })
	}
}

func (o *streamIndex[T]) open(ctx context.Context) (err error) {
	if o.store, err = o.stream.Store(ctx); err != nil {
		return err
	}
	stream.CountByIndex(o.store, o.index, 0) // builds it
	pods, err := o.pods.Store(ctx)
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

func (o *streamIndex[T]) has(n identity.Number) bool {
	for key := range o.with(n) {
		if o.claims.Counts(key, n) {
			return true
		}
	}
	return false
}

func (o *streamIndex[T]) ignored() (namespace string, numbers int) { return o.claims.Ignored() }

func (o *streamIndex[T]) undecodable() []slim.Key { return o.store.Unreadable(o.field) }

func (o *streamIndex[T]) with(n identity.Number) iter.Seq[slim.Key] {
	return func(yield func(slim.Key) bool) {
		more := true
		for obj := range stream.ByIndex(o.store, o.index, n) {
			o.each(obj, func(key slim.Key, has identity.Number) {
				if more && has == n {
					more = yield(key)
				}
			})
			if !more {
				return
			}
		}
	}
}

func (o *streamIndex[T]) of(pod slim.Key) (number identity.Number, found bool) {
	for obj := range o.find(o.store, pod) {
		o.each(obj, func(key slim.Key, n identity.Number) {
			if key == pod {
				number, found = n, true
			}
		})
	}
	return number, found
}
