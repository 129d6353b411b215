// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package leading

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/skep-operator/skep/runtime/job"
)

// A write that is cut off may take effect after the next leader has read the cluster. So
// a write whose caller leaves goes on for a while, for its response. A term that ends
// in order, which releases the lease, waits until unanswered writes cannot be on their
// way any more. Behind a closed fence there is no need: the next leader waits itself.
const (
	// ResponseTime is for how long a write goes on whose caller has left.
	ResponseTime = 5 * time.Second
	drainTime    = 5 * time.Second
)

// DetachForResponse returns the context of a write. It ends when the fence closes, when
// the deadline of the caller passes, and five seconds after the caller has cancelled.
// done releases it.
func DetachForResponse(caller context.Context, fence *Fence) (ctx context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(caller))
	closed := context.AfterFunc(fence.Context(), func() { cancel(ErrFenced) })
	left := context.AfterFunc(caller, func() {
		if errors.Is(caller.Err(), context.DeadlineExceeded) {
			cancel(context.Cause(caller))
			return
		}
		time.AfterFunc(ResponseTime, func() { cancel(context.Cause(caller)) })
	})
	return ctx, func() { closed(); left(); cancel(nil) }
}

// Reader reads the revision of an object from the API server.
type Reader func(ctx context.Context, o Object) (revision uint64, exists bool, err error)

// Drain waits until unanswered writes cannot take effect any more, and reads their
// outcome. Where that fails, the next leader has to read the resource.
func (t *Tracker) Drain(ctx context.Context, log *slog.Logger, read Reader) {
	if rest := t.Unanswered(); rest > 0 && ctx.Err() == nil {
		log.Info("waiting for an unanswered write to expire before releasing the lease", "for", rest.Round(time.Millisecond).String())
		job.Sleep(ctx, rest)
	}
	limited, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	for o, since := range t.pending() {
		if err := t.resolve(limited, o, since, read); err != nil {
			log.Debug("outcome of a write is unknown, the next leader reads the resource", "error", err)
			return
		}
	}
}

// Unanswered is for how long an unanswered write may yet take effect, 0 for none.
func (t *Tracker) Unanswered() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(0, drainTime-t.since(t.unanswered))
}

func (t *Tracker) since(at time.Time) time.Duration { return t.Now().Sub(at) }

// resolve reads the outcome of an unanswered write.
func (t *Tracker) resolve(ctx context.Context, o Object, since time.Time, read Reader) error {
	if !job.Sleep(ctx, drainTime-t.since(since)) {
		return context.Cause(ctx)
	}
	revision, exists, err := read(ctx, o)
	switch {
	case err != nil:
		return fmt.Errorf("reading the outcome of a write to %s %s: %w", o.Resource.GroupResource(), o.Name, err)
	case exists:
		t.Stored(o, revision)
	default:
		t.Refused(o, time.Time{})
	}
	return nil
}
