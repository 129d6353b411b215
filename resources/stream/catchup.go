// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// reachLimit is how long a stream may take to show a revision before the server is
// asked instead. It may never come to it, if etcd was restored from a backup.
const reachLimit = 15 * time.Second

// CatchUp returns once a stream of a resource shows all that leaders before this
// one wrote: a duty whose decisions must not contradict earlier ones calls it
// before its first. Where it is known how far they wrote, and the stream comes to
// it, it costs nothing. Else it costs a new list, or, in a process that led before
// and has no need to hurry, some seconds. The error is that of ctx, of the stream,
// or of the API server.
func CatchUp[T any](ctx context.Context, r Resource[T], h k8s.Handover, resource schema.GroupVersionResource) error {
	revision, known, err := h.Before(ctx, resource)
	if err != nil {
		return err
	}
	if known {
		limited, cancel := context.WithTimeout(ctx, reachLimit)
		defer cancel()
		err = r.Reach(limited, slim.Revision(revision))
		if err == nil || ctx.Err() != nil || errors.Is(err, ErrClosed) {
			return err
		}
	}
	if h.Again() {
		err = r.Confirm(ctx)
	} else {
		err = r.Refresh(ctx)
	}
	if err != nil {
		return err
	}
	seen, err := newest(ctx, r)
	if err == nil {
		h.Saw(resource, uint64(seen))
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
