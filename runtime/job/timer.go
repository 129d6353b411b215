// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package job

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// TriggeredBy makes a timer run when t is triggered, at least debounce after
// the run before.
func TriggeredBy(t *Trigger, debounce time.Duration) Option {
	return func(o *options) { o.trigger, o.debounce = t, debounce }
}

// StartLater makes a timer's first run wait for the first interval, or for the
// trigger. Without it the first run is at the start.
func StartLater() Option { return func(o *options) { o.startLater = true } }

// Timer runs at the start and then again and again, interval after the end of
// each run. An interval of 0 leaves only the trigger and, after a failure, the
// retries.
func Timer(run func(context.Context) error, interval time.Duration, opts ...Option) Job {
	return newJob(opts, func(ctx context.Context, r *running, o options) {
		t := timer{interval: interval, options: o}
		if o.startLater && !t.wait(ctx, interval) {
			return
		}
		for {
			o.trigger.clear()
			err, alive := r.run(ctx, run)
			if !alive {
				return
			}
			pause := interval
			if err != nil {
				r.degraded("will run again", err)
				pause = t.retryPause()
			} else {
				t.pauses = nil
				r.health.OK("")
			}
			if !t.wait(ctx, pause) {
				return
			}
		}
	})
}

type timer struct {
	options
	interval time.Duration
	pauses   backoff.BackOff // of the failures in a row
}

func (t *timer) retryPause() time.Duration {
	if t.retry == nil {
		return t.interval
	}
	if t.pauses == nil {
		t.pauses = t.retry()
	}
	pause := t.pauses.NextBackOff()
	if t.interval > 0 {
		pause = min(pause, t.interval)
	}
	return pause
}

// wait sleeps until the next run is due or triggered, and reports whether
// there is to be one.
func (t *timer) wait(ctx context.Context, pause time.Duration) bool {
	var due <-chan time.Time
	if pause > 0 {
		clock := time.NewTimer(pause)
		defer clock.Stop()
		due = clock.C
	}
	began := time.Now()
	select {
	case <-ctx.Done():
		return false
	case <-due:
		return true
	case <-t.trigger.wait():
		return Sleep(ctx, t.debounce-time.Since(began))
	}
}
