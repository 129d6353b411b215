// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package job

import "context"

// Observer calls each for every event, one at a time, until the channel is
// closed. An event that fails is dropped, or with [Retry] retried while
// those after it wait; a failure degrades the job until an event
// succeeds.
func Observer[E any](events <-chan E, each func(context.Context, E) error, opts ...Option) Job {
	return newJob(KindObserver, opts, func(ctx context.Context, r *running, o options) {
		for {
			select {
			case <-ctx.Done():
				return
			case e, ok := <-events:
				if !ok {
					r.health.Stopped("no more events")
					return
				}
				switch err, alive := o.runWithRetries(ctx, r, func(ctx context.Context) error { return each(ctx, e) }); {
				case !alive:
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
