// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// revisionLimit is how long a stream may take to show a revision before the server is
// asked instead. It may never come to it, if etcd was restored from a backup.
const revisionLimit = 15 * time.Second

// AwaitPredecessor returns once a stream of a resource shows all that leaders before this
// one wrote: a duty whose decisions must not contradict earlier ones calls it
// before its first. Where it is known how far they wrote, and the stream comes to
// it, it costs nothing. Else it costs a new list, or, in a process that led before
// and has no need to hurry, some seconds. The error is that of ctx, of the stream,
// or of the API server.
func AwaitPredecessor[T any](ctx context.Context, r Resource[T], h leading.Handover, resource schema.GroupVersionResource) error {
	revision, known, err := h.PredecessorRevision(ctx, resource)
	if err != nil {
		return err
	}
	if known {
		limited, cancel := context.WithTimeout(ctx, revisionLimit)
		defer cancel()
		err = r.WaitForRevision(limited, slim.Revision(revision))
		if err == nil || ctx.Err() != nil || errors.Is(err, ErrClosed) {
			return err
		}
	}
	if h.WasLeader() {
		err = r.WaitForFresh(ctx)
	} else {
		err = r.Relist(ctx)
	}
	if err != nil {
		return err
	}
	seen, err := newest(ctx, r)
	if err == nil {
		h.RecordSynced(resource, uint64(seen))
	}
	return err
}

// newest is the highest resourceVersion among the objects of a stream.
func newest[T any](ctx context.Context, r Resource[T]) (slim.Revision, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	store, err := r.Store(ctx)
	if err != nil {
		return 0, err
	}
	var highest slim.Revision
	for obj := range store.All() {
		highest = max(highest, slim.MetaOf(obj).ResourceVersion)
	}
	return highest, nil
}
