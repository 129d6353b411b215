// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reconcile

import (
	"context"
	"time"
)

// Periodic returns a queue of one key, which is reconciled when Run starts, and an interval after each success.
func Periodic(s Deps, rule, key string, interval time.Duration, do func(context.Context, string) error, opts ...Option) *Queue[string] {
	repeated := func(ctx context.Context, key string) error {
		if err := do(ctx, key); err != nil {
			return err
		}
		return RequeueAfter(interval)
	}
	q := NewQueue(s, rule, repeated, append([]Option{Workers(1)}, opts...)...)
	q.Add(key, s.TermTrigger())
	return q
}
