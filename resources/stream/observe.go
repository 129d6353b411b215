// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"context"

	"github.com/skep-operator/skep/runtime/job"
)

// Observe returns a job that calls see for every event of a subscription to r,
// one at a time, and is Done with it when see returns. What can fail, such as a
// write, belongs into a loop of package reconcile, to which see adds the key.
func Observe[T any](r Resource[T], see func(context.Context, Event[T]), opts ...SubscribeOption) job.Job {
	return job.OneShot(func(ctx context.Context) error {
		for e := range r.Events(ctx, opts...) {
			see(ctx, e)
			e.Done(nil)
		}
		return ctx.Err()
	})
}
