// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package job

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Job is work to be run by a group. It is immutable and may be run by one
// group at a time.
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
// each up to half longer or shorter by chance. For a timer the pause replaces
// the interval where it is shorter.
func Retry(first, longest time.Duration) Option {
	return func(o *options) {
		o.retry = func() backoff.BackOff {
			b := backoff.NewExponentialBackOff()
			b.InitialInterval, b.MaxInterval, b.Multiplier = first, longest, 2
			return b
		}
	}
}

// Attempts ends a one-shot job after that many failed runs.
func Attempts(n int) Option { return func(o *options) { o.attempts = n } }

// TriggeredBy makes a timer run when t is triggered, at least debounce after
// the run before.
func TriggeredBy(t *Trigger, debounce time.Duration) Option {
	return func(o *options) { o.trigger, o.debounce = t, debounce }
}

// StartLater makes a timer's first run wait for the first interval. Without it
// the first run is at the start.
func StartLater() Option { return func(o *options) { o.startLater = true } }

// ShutdownOnError stops the process when the job has failed for good.
func ShutdownOnError() Option { return func(o *options) { o.shutdown = true } }

// Trigger asks a timer to run now. Its zero value is not usable; make one with
// [NewTrigger]. It is safe for concurrent use.
type Trigger struct{ c chan struct{} }

// NewTrigger returns a trigger that no job listens to yet. Triggering is
// remembered until one does.
func NewTrigger() *Trigger { return &Trigger{make(chan struct{}, 1)} }

// Trigger asks for a run. Requests that come before the run starts are one.
func (t *Trigger) Trigger() {
	select {
	case t.c <- struct{}{}:
	default:
	}
}

func (t *Trigger) wait() <-chan struct{} {
	if t == nil {
		return nil
	}
	return t.c
}

func newJob(opts []Option, loop func(ctx context.Context, r *running, o options)) Job {
	var o options
	for _, apply := range opts {
		apply(&o)
	}
	return Job{options: o, loop: func(ctx context.Context, r *running) { loop(ctx, r, o) }}
}

// OneShot runs once, and again after a failure where [Retry] says so.
func OneShot(run func(context.Context) error, opts ...Option) Job {
	return newJob(opts, func(ctx context.Context, r *running, o options) {
		var pauses backoff.BackOff
		if o.retry != nil {
			pauses = o.retry()
		}
		for attempt := 1; ; attempt++ {
			err := r.run(ctx, run)
			switch {
			case ctx.Err() != nil:
				return
			case err == nil:
				r.health.Stopped("done")
				return
			case pauses == nil || attempt == o.attempts:
				r.fail(err)
				return
			}
			r.degraded("retrying", err)
			if !sleep(ctx, pauses.NextBackOff()) {
				return
			}
		}
	})
}

// Timer runs at the start and then again and again, interval after the end of
// each run. An interval of 0 leaves only the trigger.
func Timer(run func(context.Context) error, interval time.Duration, opts ...Option) Job {
	return newJob(opts, func(ctx context.Context, r *running, o options) {
		t := timer{interval: interval, options: o}
		if o.startLater && !t.wait(ctx, interval) {
			return
		}
		for {
			err := r.run(ctx, run)
			if ctx.Err() != nil {
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
		return sleep(ctx, t.debounce-time.Since(began))
	}
}

// Observer calls each for every event until the channel is closed. A failure
// degrades the job until an event succeeds; events are not repeated.
func Observer[E any](events <-chan E, each func(context.Context, E) error, opts ...Option) Job {
	return newJob(opts, func(ctx context.Context, r *running, _ options) {
		for {
			select {
			case <-ctx.Done():
				return
			case e, ok := <-events:
				if !ok {
					r.health.Stopped("no more events")
					return
				}
				err := r.run(ctx, func(ctx context.Context) error { return each(ctx, e) })
				switch {
				case ctx.Err() != nil:
					return
				case err != nil:
					r.degraded("an event failed", err)
				default:
					r.health.OK("")
				}
			}
		}
	})
}

// sleep waits and reports whether ctx is still alive.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
