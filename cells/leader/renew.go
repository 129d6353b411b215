// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package leader

import (
	"context"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/runtime/job"
)

// renew renews the lease until ctx ends, the fence closes, or another replica holds it. The error is nil when ctx ended.
func (e *elector) renew(ctx context.Context, fence *leading.Fence) error {
	open, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(fence.Context(), cancel)()
	var failure error
	pause := e.Config.LeaderElectionRetryPeriod
	for job.Sleep(open, pause) && fence.Check() == nil {
		from := e.clock.Now()
		failure = e.renewOnce(open)
		if errors.Is(failure, errLost) {
			return failure
		}
		if failure != nil {
			e.Log.Debug("renewing the lease failed, retrying", "error", failure, "fence", fence.String())
			pause = e.Config.poll()
			continue
		}
		if !fence.Extend(from, e.Config.LeaderElectionRenewDeadline) {
			break
		}
		pause = e.Config.LeaderElectionRetryPeriod
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("%w: not renewed within %s (last failure: %v)", errLost, e.Config.LeaderElectionRenewDeadline, failure)
}

func (e *elector) renewOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, e.Config.requestTimeout())
	defer cancel()
	return e.lock.write(ctx, func(lease *coordinationv1.Lease) error {
		lease.Spec = e.spec(*lease.Spec.AcquireTime, *lease.Spec.LeaseTransitions)
		delete(lease.Annotations, writtenAnnotation)
		return nil
	})
}

// release releases the lease, so that a standby does not wait for its expiry.
func (e *elector) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.Config.requestTimeout())
	defer cancel()
	written := e.Leading.WriteProgress()
	for {
		err := e.lock.write(ctx, func(lease *coordinationv1.Lease) error { return releaseLease(lease, written) })
		if err == nil || errors.Is(err, errLost) {
			return
		}
		if !job.Sleep(ctx, pollPeriod) {
			e.Log.Warn("cannot release the lease before it expires", "error", err)
			return
		}
	}
}
