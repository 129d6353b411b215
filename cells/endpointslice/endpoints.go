// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"context"
	"sync/atomic"

	"github.com/skep-operator/skep/resources/api/v2alpha1"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// endpointSource takes endpoints from CiliumEndpoints, which agents write.
type endpointSource struct {
	fields fields
	stream stream.Resource[ciliumio.Endpoint]
	store  atomic.Pointer[stream.Store[ciliumio.Endpoint]] // nil until it is synced
}

func newEndpointSource(r stream.Resource[ciliumio.Endpoint], shared cluster.Config) source {
	return &endpointSource{fields: fieldsOf(shared), stream: r}
}

// fields are those of entries that only later releases have: without them slices stay as the original of the release left them.
type fields struct{ serviceAccount, podUID bool }

func fieldsOf(shared cluster.Config) fields {
	return fields{release.ServiceAccountsInSlices.In(shared.Release), release.PodUIDsInSlices.In(shared.Release)}
}

// keep takes the fields off an entry that the release does not have.
func (f fields) keep(e v2alpha1.CoreCiliumEndpoint) v2alpha1.CoreCiliumEndpoint {
	if !f.serviceAccount {
		e.ServiceAccount = ""
	}
	if !f.podUID {
		e.PodUID = ""
	}
	return e
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
	entry, ok = e.Slice()
	return s.fields.keep(entry), ok
}

func (s *endpointSource) undecodable(key slim.Key) bool {
	store := s.store.Load()
	e, ok := store.Get(key)
	return ok && s.fields.cannotDecode(e) || !ok && store.Hides(key)
}

// cannotDecode reports whether it is not known what an entry of the endpoint has.
func (f fields) cannotDecode(e *ciliumio.Endpoint) bool {
	return e.CannotDecode("status.identity", "status.networking", "status.encryption", "status.named-ports", "status.service-account") ||
		f.podUID && e.CannotDecode("metadata.ownerReferences")
}

func (s *endpointSource) awaitFresh(ctx context.Context) error { return s.stream.WaitForFresh(ctx) }
