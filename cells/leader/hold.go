// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package leader

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/job"
)

// errLost ends a term when the lease is gone.
var errLost = errors.New("the lease is lost")

// renew keeps the lease until ctx ends, the fence shuts, or somebody else holds
// it. The error says which.
func (e *elector) renew(ctx context.Context, fence *k8s.Fence) error {
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
			e.Log.Debug("renewing the lease failed, trying on", "error", failure, "fence", fence.String())
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
	status := e.Status()
	next := e.record(metav1.Now(), status.Transitions)
	next.AcquireTime = metav1.NewTime(status.Since)
	return e.put(ctx, next)
}

// put writes the lease of which this replica is the holder. The error is
// errLost if it is not.
func (e *elector) put(ctx context.Context, next resourcelock.LeaderElectionRecord) error {
	err := e.lock.Update(ctx, next)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: it was deleted", errLost)
	case !apierrors.IsConflict(err):
		return err
	}
	// Somebody wrote: perhaps a request of ours whose answer was lost.
	current, _, err := e.lock.Get(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: it was deleted", errLost)
	case err != nil:
		return err
	case current.HolderIdentity != e.me:
		return fmt.Errorf("%w: %q holds it", errLost, current.HolderIdentity)
	}
	return e.lock.Update(ctx, next)
}

// release gives the lease away, so that a standby need not wait for its end.
func (e *elector) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.Config.requestTimeout())
	defer cancel()
	for {
		err := e.giveAway(ctx)
		if err == nil || errors.Is(err, errLost) {
			return
		}
		if !job.Sleep(ctx, pollPeriod) {
			e.Log.Warn("cannot release the lease; a standby takes it when it runs out", "error", err)
			return
		}
	}
}
