// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package job

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Job is work to be run by a group. It is immutable and may be run by one
// group at a time. The zero Job does nothing.
type Job struct {
	loop    func(ctx context.Context, r *running)
	options options
}

type options struct {
	retry      func() backoff.BackOff // nil: no retry
	attempts   int                    // 0: endless
	trigger    *Trigger
	debounce   time.Duration
	startLater bool
	shutdown   bool
}

// Option changes when a job runs and what its failure means.
type Option func(*options)

// Retry repeats a failed run after pauses that double from first to longest,
// each up to half longer or shorter by chance. A one-shot job is run again, an
// observer is given the same event again; for a timer the pause replaces the
// interval where it is shorter.
func Retry(first, longest time.Duration) Option {
	return func(o *options) {
		o.retry = func() backoff.BackOff {
			b := backoff.NewExponentialBackOff()
			b.InitialInterval, b.MaxInterval, b.Multiplier = first, longest, 2
			return b
		}
	}
}

// Attempts ends what [Retry] repeats after n runs in all: a one-shot job has
// then failed for good, an observer goes on to the next event. Without it
// retries are endless. Timers take no notice.
func Attempts(n int) Option { return func(o *options) { o.attempts = n } }

// ShutdownOnError stops the process when a one-shot job has failed for good.
func ShutdownOnError() Option { return func(o *options) { o.shutdown = true } }

func newJob(opts []Option, loop func(ctx context.Context, r *running, o options)) Job {
	var o options
	for _, apply := range opts {
		apply(&o)
	}
	return Job{options: o, loop: func(ctx context.Context, r *running) { loop(ctx, r, o) }}
}

// try runs do until it succeeds or is not to be repeated. alive is false when
// the job is told to stop.
func (o options) try(ctx context.Context, r *running, do func(context.Context) error) (err error, alive bool) {
	var pauses backoff.BackOff
	if o.retry != nil {
		pauses = o.retry()
	}
	run := r.run
	for attempt := 1; ; attempt++ {
		err, alive := run(ctx, do)
		if err == nil || !alive || pauses == nil || attempt == o.attempts {
			return err, alive
		}
		r.degraded("will try again", err)
		if !Sleep(ctx, pauses.NextBackOff()) {
			return err, false
		}
		run = r.again
	}
}
