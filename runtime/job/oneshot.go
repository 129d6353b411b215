// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package job

import "context"

// OneShot runs once, and again after a failure with [Retry].
func OneShot(run func(context.Context) error, opts ...Option) Job {
	return newJob(KindOneShot, opts, func(ctx context.Context, r *running, o options) {
		switch err, alive := o.runWithRetries(ctx, r, run); {
		case !alive:
		case err != nil:
			r.fail(err)
		default:
			r.health.Stopped("done")
		}
	})
}
