// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package job

import (
	"context"
	"time"

	"github.com/skep-operator/skep/runtime/internal/backoff"
)

// DelayFirstRun makes a timer's first run wait for the first interval. Without it the first run is at the start.
func DelayFirstRun() Option { return func(o *options) { o.delayFirstRun = true } }

// Timer runs at the start and then again and again, interval after the end of
// each run. With an interval of 0 it is a [OneShot].
func Timer(run func(context.Context) error, interval time.Duration, opts ...Option) Job {
	if interval <= 0 {
		return OneShot(run, opts...)
	}
	return newJob(KindTimer, opts, func(ctx context.Context, r *running, o options) {
		t := timer{interval: interval, options: o}
		if o.delayFirstRun && !Sleep(ctx, interval) {
			return
		}
		for {
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
			if !Sleep(ctx, pause) {
				return
			}
		}
	})
}

type timer struct {
	options
	interval time.Duration
	pauses   backoff.Pauses // of the failures in a row
}

func (t *timer) retryPause() time.Duration {
	if t.retry == nil {
		return t.interval
	}
	if t.pauses == nil {
		t.pauses = t.retry()
	}
	return min(t.pauses.NextBackOff(), t.interval)
}
