// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"context"
	"sync/atomic"

	"github.com/skep-operator/skep/resources/api/v2alpha1"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// endpointSource takes endpoints from CiliumEndpoints, which agents write.
type endpointSource struct {
	stream stream.Resource[ciliumio.Endpoint]
	store  atomic.Pointer[stream.Store[ciliumio.Endpoint]] // nil until it is synced
}

func newEndpointSource(r stream.Resource[ciliumio.Endpoint]) source {
	return &endpointSource{stream: r}
}

func (s *endpointSource) watch(ctx context.Context, handle func(slim.Key, k8s.Trigger), synced func()) error {
	store, err := s.stream.Store(ctx)
	if err != nil {
		return err
	}
	s.store.Store(store)
	for batch := range s.stream.Changes(ctx) {
		for _, ch := range batch.Changes {
			handle(ch.Key, ciliumio.Endpoints.Trigger(ch.Object))
		}
		if batch.Synced {
			synced()
		}
	}
	return ctx.Err()
}

func (s *endpointSource) content(key slim.Key, _ int64) (entry v2alpha1.CoreCiliumEndpoint, ok bool) {
	e, ok := s.store.Load().Get(key)
	if !ok {
		return entry, false
	}
	return e.Slice()
}

func (s *endpointSource) undecodable(key slim.Key) bool {
	store := s.store.Load()
	e, ok := store.Get(key)
	return ok && e.CannotDecode("status.identity", "status.networking", "status.encryption", "status.named-ports") || !ok && store.Hides(key)
}

func (s *endpointSource) awaitFresh(ctx context.Context) error { return s.stream.WaitForFresh(ctx) }
