// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reconcile

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skep-operator/skep/runtime/job"
)

// Fresh reports whether streams show what the API server had when the term began. Earlier leaders may have seen more than a
// stream shows at first: what they have written is not removed before, because an object was not seen yet. The zero value is
// ready for use, and safe for concurrent use.
type Fresh struct{ is atomic.Bool }

// Is reports whether the streams are fresh.
func (f *Fresh) Is() bool { return f.is.Load() }

// Await returns when the streams are fresh, which takes some seconds; false if ctx ends before. A dry run has listed all at
// its start.
func (f *Fresh) Await(ctx context.Context, d Deps, streams ...interface{ WaitForFresh(context.Context) error }) bool {
	for d.Plan == nil {
		all, limited := errgroup.WithContext(ctx)
		for _, s := range streams {
			all.Go(func() error { return s.WaitForFresh(limited) })
		}
		if all.Wait() == nil {
			break
		}
		if !job.Sleep(ctx, time.Second) {
			return false
		}
	}
	f.is.Store(true)
	return true
}
