// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package job

import (
	"context"
	"time"

	"github.com/skep-operator/skep/runtime/internal/backoff"
)

// Job is work to be run by a group. It is immutable and may be run by one
// group at a time. The zero Job does nothing.
type Job struct {
	kind    Kind
	loop    func(ctx context.Context, r *running)
	options options
}

// Kind is when a job runs.
type Kind string

// The kinds of jobs.
const (
	KindOneShot  Kind = "oneshot"
	KindTimer    Kind = "timer"
	KindObserver Kind = "observer"
)

type options struct {
	retry         func() backoff.Pauses // nil: no retry
	delayFirstRun bool
}

// Option changes when a job runs and what its failure means.
type Option func(*options)

// Retry repeats a failed run after pauses that double from first to longest,
// each up to half longer or shorter by chance. A one-shot job is run again, an
// observer is given the same event again; for a timer the pause replaces the
// interval where it is shorter.
func Retry(first, longest time.Duration) Option {
	return func(o *options) {
		o.retry = func() backoff.Pauses { return backoff.New(first, longest, 0.5) }
	}
}

func newJob(kind Kind, opts []Option, loop func(ctx context.Context, r *running, o options)) Job {
	var o options
	for _, apply := range opts {
		apply(&o)
	}
	return Job{kind: kind, options: o, loop: func(ctx context.Context, r *running) { loop(ctx, r, o) }}
}

// runWithRetries runs do until it succeeds or is not to be repeated. alive is
// false when the job was stopped.
func (o options) runWithRetries(ctx context.Context, r *running, do func(context.Context) error) (err error, alive bool) {
	var pauses backoff.Pauses
	if o.retry != nil {
		pauses = o.retry()
	}
	run := r.run
	for {
		err, alive := run(ctx, do)
		if err == nil || !alive || pauses == nil {
			return err, alive
		}
		r.degraded("will try again", err)
		if !Sleep(ctx, pauses.NextBackOff()) {
			return err, false
		}
		run = r.retryRun
	}
}
