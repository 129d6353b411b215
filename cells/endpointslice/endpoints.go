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

// fromEndpoints takes endpoints from CiliumEndpoints, as agents write them.
type fromEndpoints struct {
	stream stream.Resource[ciliumio.Endpoint]
	store  atomic.Pointer[stream.Store[ciliumio.Endpoint]] // nil until it is complete
}

func newFromEndpoints(r stream.Resource[ciliumio.Endpoint]) source { return &fromEndpoints{stream: r} }

func (f *fromEndpoints) follow(ctx context.Context, see func(slim.Key, k8s.Trigger), synced func()) error {
	store, err := f.stream.Store(ctx)
	if err != nil {
		return err
	}
	f.store.Store(store)
	for batch := range f.stream.Batches(ctx, 256, 0, stream.Named("endpointslice")) {
		for _, e := range batch {
			if e.Kind == stream.Sync {
				synced()
				continue
			}
			see(e.Key, k8s.Trigger{Kind: "CiliumEndpoint", Namespace: e.Key.Namespace, Name: e.Key.Name, ResourceVersion: e.Object.ResourceVersion.String()})
		}
		batch.Done(nil)
	}
	return ctx.Err()
}

func (f *fromEndpoints) says(key slim.Key, _ int64) (says v2alpha1.CoreCiliumEndpoint, ok bool) {
	e, ok := f.store.Load().Get(key)
	if !ok {
		return says, false
	}
	return e.Slice()
}

func (f *fromEndpoints) confirm(ctx context.Context) error { return f.stream.Confirm(ctx) }
