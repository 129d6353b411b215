// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"errors"
	"time"

	"github.com/skep-operator/skep/runtime/job"
)

// A write that is cut off may yet take effect, after the next leader has looked. So
// a write whose caller leaves goes on for a while, for its answer. A term that ends
// in order, which gives the lease away, waits for those that got none until they
// cannot be on their way any more. Behind a fence that is shut there is nobody to
// wait for: the next leader waits itself.
const (
	answerTime = 5 * time.Second
	settleTime = 5 * time.Second
)

// outlast returns the context of a write. It ends when the fence shuts, when the
// caller's time is over, and answerTime after the caller has left. done lets go of it.
func outlast(caller context.Context, fence *Fence) (ctx context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(caller))
	shut := context.AfterFunc(fence.Context(), func() { cancel(ErrFenced) })
	left := context.AfterFunc(caller, func() {
		if errors.Is(caller.Err(), context.DeadlineExceeded) {
			cancel(context.Cause(caller))
			return
		}
		time.AfterFunc(answerTime, func() { cancel(context.Cause(caller)) })
	})
	return ctx, func() { shut(); left(); cancel(nil) }
}

// unsettled is how long a write may yet take effect of which nobody knows what it
// did; 0 if there is none.
func (l *ledger) unsettled() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, settleTime-time.Since(l.unanswered))
}

// Settle implements Leading.
func (l *leasing) Settle(ctx context.Context) {
	if rest := l.ledger.unsettled(); rest > 0 && ctx.Err() == nil {
		l.log.Info("a write has got no answer, waiting until it cannot take effect any more", "for", rest.Round(time.Millisecond).String())
		job.Sleep(ctx, rest)
	}
	limited, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	if err := l.learn(limited); err != nil {
		l.log.Debug("the next leader has to read what was written", "error", err)
	}
}

// learn finds out what became of writes without an answer. After an error the next
// leader has to read all of the resources of the rest.
func (l *leasing) learn(ctx context.Context) error {
	open := l.ledger.openWrites()
	if len(open) == 0 {
		return nil
	}
	reader, err := newClient(&moduleDoor{door: l.door, module: "leader"}, l.permissions)
	if err != nil {
		return err
	}
	h := handover{l.ledger, reader}
	for ref, since := range open {
		if err := h.resolve(ctx, ref, since); err != nil {
			return err
		}
	}
	return nil
}
