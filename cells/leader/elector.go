// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/version"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

const (
	leaseName = "cilium-operator-resource-lock"
	// pollPeriod is how often a standby looks at the lease. Watching it is not
	// allowed by the stock role.
	pollPeriod = 250 * time.Millisecond
	// leaveLimit is how long the cells of a term may take to stop.
	leaveLimit = 45 * time.Second
)

// oldestAPI is the oldest API server that is served.
var oldestAPI = version.MustParseSemantic("1.16.0")

// elector campaigns for the lease, and runs the term while it holds it.
type elector struct {
	params
	lock  resourcelock.Interface
	me    string
	clock k8s.Clock

	mu     sync.Mutex
	status k8s.ElectionStatus
}

type params struct {
	cell.In

	Config  Config
	Cluster cluster.Config
	Leading k8s.Leading
	Server  k8s.Server
	Term    lifecycle.Term `name:"leader"`
	Metrics *leaderMetrics
	Health  health.Reporter
	Log     *slog.Logger
	Stop    lifecycle.Shutdown
}

func newElector(p params) (*elector, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("finding the host's name for the lease: %w", err)
	}
	leases, err := coordinationclient.NewForConfig(p.Leading.LeaseConfig())
	if err != nil {
		return nil, err
	}
	namespace := p.Cluster.K8sNamespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	e := &elector{params: p, me: host + "-" + rand.String(10), clock: k8s.SystemClock}
	e.lock = &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Name: leaseName, Namespace: namespace},
		Client:     leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: e.me},
	}
	e.status = k8s.ElectionStatus{Identity: e.me, Lease: e.lock.Describe()}
	return e, nil
}

func (e *elector) election() k8s.Election { return e }

// Status implements k8s.Election.
func (e *elector) Status() k8s.ElectionStatus {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.status
}

func (e *elector) setStatus(change func(*k8s.ElectionStatus)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(&e.status)
}

func (e *elector) job() job.Job { return job.OneShot(e.run, job.Retry(time.Second, time.Minute)) }

// run campaigns and leads in turn until ctx ends.
func (e *elector) run(ctx context.Context) error {
	if !e.awaitServer(ctx) {
		return ctx.Err()
	}
	seen := sighting{}
	for {
		fence, ok := e.campaign(ctx, &seen)
		if !ok {
			return ctx.Err()
		}
		e.lead(ctx, fence, seen.settled(e.me, e.Config))
		seen = sighting{} // what holds now is somebody else's
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// awaitServer waits for an API server and refuses one that is too old.
func (e *elector) awaitServer(ctx context.Context) bool {
	for {
		attempt, cancel := context.WithTimeout(ctx, e.Config.requestTimeout())
		info, err := e.Server.Version(attempt)
		cancel()
		if err == nil {
			running, err := version.ParseSemantic(info.GitVersion)
			if err == nil && running.LessThan(oldestAPI) {
				e.Stop(fmt.Errorf("k8s version (%s) is not meeting the minimal requirement (%s)", running, oldestAPI))
			}
			return ctx.Err() == nil
		}
		e.Health.Degraded("waiting for the API server", err)
		if !sleep(ctx, time.Second) {
			return false
		}
	}
}

// campaign returns once the lease is held, with the fence of the term. seen is
// the lease as it was before.
func (e *elector) campaign(ctx context.Context, seen *sighting) (*k8s.Fence, bool) {
	failing := false
	for {
		fence, err := e.try(ctx, seen)
		switch {
		case ctx.Err() != nil:
			return nil, false
		case fence != nil:
			return fence, true
		case err != nil:
			e.Health.Degraded("cannot read or take the lease", err)
			if !failing {
				e.Log.Warn("cannot read or take the lease, trying on", "lease", e.lock.Describe(), "error", err)
			}
			failing = true
		default:
			failing = false
			e.standBy(seen.record)
		}
		if !sleep(ctx, pollPeriod) {
			return nil, false
		}
	}
}

func (e *elector) standBy(record resourcelock.LeaderElectionRecord) {
	if e.Status().Holder != record.HolderIdentity {
		e.Log.Info("standing by", "leader", record.HolderIdentity)
	}
	e.setStatus(func(s *k8s.ElectionStatus) {
		s.Holder, s.Since, s.Transitions = record.HolderIdentity, record.AcquireTime.Time, record.LeaderTransitions
	})
	e.Health.OK("standing by; " + record.HolderIdentity + " leads")
}

// try looks at the lease and takes it if it is free. It returns neither fence
// nor error while somebody else holds it.
func (e *elector) try(ctx context.Context, seen *sighting) (*k8s.Fence, error) {
	ctx, cancel := context.WithTimeout(ctx, e.Config.requestTimeout())
	defer cancel()
	record, raw, err := e.lock.Get(ctx)
	switch {
	case apierrors.IsNotFound(err):
		*seen = sighting{}
	case err != nil:
		return nil, err
	default:
		*seen = seen.seen(*record, raw, e.clock.Now())
	}
	from := e.clock.Now()
	if !seen.free(e.me, from) {
		return nil, nil
	}
	err = e.take(ctx, *seen)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return nil, nil // another was faster
	}
	if err != nil {
		return nil, err
	}
	return k8s.NewFence(e.clock, from, e.Config.LeaderElectionRenewDeadline), nil
}

func (e *elector) take(ctx context.Context, seen sighting) error {
	now := metav1.Now()
	next := e.record(now, seen.record.LeaderTransitions)
	if !seen.exists {
		return e.lock.Create(ctx, next)
	}
	if seen.record.HolderIdentity != e.me {
		next.LeaderTransitions++
	}
	err := e.lock.Update(ctx, next)
	if err == nil {
		e.setStatus(func(s *k8s.ElectionStatus) { s.Transitions = next.LeaderTransitions })
	}
	return err
}

func (e *elector) record(now metav1.Time, transitions int) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{
		HolderIdentity:       e.me,
		LeaseDurationSeconds: int(e.Config.LeaderElectionLeaseDuration / time.Second),
		AcquireTime:          now, RenewTime: now,
		LeaderTransitions: transitions,
	}
}

// errLost ends a term when the lease is gone.
var errLost = errors.New("the lease is lost")

// lead runs the term until the lease is lost or ctx ends; then the lease is
// released, after all cells of the term have stopped.
func (e *elector) lead(ctx context.Context, fence *k8s.Fence, settled time.Duration) {
	defer fence.Close()
	began := time.Now()
	e.announce(began)
	// Renewing goes on while the term is left: its cells may still write.
	holding, stopRenewing := context.WithCancelCause(context.WithoutCancel(ctx))
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		stopRenewing(e.renew(holding, fence, metav1.NewTime(began)))
	}()
	term, endTerm := context.WithCancel(ctx)
	defer context.AfterFunc(holding, endTerm)()
	if !e.enter(term, fence, settled) {
		endTerm() // another replica may fare better
	}
	<-term.Done()

	lost := holding.Err() != nil
	if lost {
		fence.Close()
		e.Metrics.Lost.Inc()
		e.Log.Warn("lost the lease, leaving the term", "error", context.Cause(holding))
	}
	e.leave(ctx)
	fence.Close()
	stopRenewing(nil)
	<-renewed
	if !lost {
		e.release(ctx)
	}
	e.Log.Info("stopped leading", "after", time.Since(began).Round(time.Millisecond).String())
	sleep(ctx, pollPeriod) // let another replica go first
}

func (e *elector) announce(began time.Time) {
	e.Log.Info("leading", "identity", e.me)
	e.Metrics.Leading.Set(1)
	e.Metrics.Terms.Inc()
	e.setStatus(func(s *k8s.ElectionStatus) { s.Holder, s.Leading, s.Since = e.me, true, began })
	e.Health.OK("leading")
}

// enter reports whether the term is entered, or its end has come already.
func (e *elector) enter(ctx context.Context, fence *k8s.Fence, settled time.Duration) bool {
	if !sleep(ctx, settled-e.clock.Monotonic()) {
		return true
	}
	err := e.Leading.Open(fence)
	if err == nil {
		err = e.Term.Enter(ctx)
	}
	if err != nil && ctx.Err() == nil {
		e.Health.Degraded("cannot lead", err)
		e.Log.Error("cannot lead, giving the lease away", "error", err)
		return false
	}
	return true
}

func (e *elector) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveLimit)
	defer cancel()
	if err := e.Term.Leave(ctx); err != nil {
		e.Log.Error("the term did not end in order", "error", err)
	}
	e.Metrics.Leading.Set(0)
	e.setStatus(func(s *k8s.ElectionStatus) { s.Leading, s.Holder = false, "" })
}

// renew keeps the lease until ctx ends, the fence shuts, or somebody else holds
// it. The error says which.
func (e *elector) renew(ctx context.Context, fence *k8s.Fence, acquired metav1.Time) error {
	for {
		if !sleep(ctx, e.Config.LeaderElectionRetryPeriod) {
			return nil
		}
		from := e.clock.Now()
		err := e.renewOnce(ctx, fence, acquired)
		switch {
		case errors.Is(err, errLost):
			return err
		case err == nil && !fence.Extend(from, e.Config.LeaderElectionRenewDeadline), fence.Check() != nil:
			return fmt.Errorf("%w: not renewed within %s: %w", errLost, e.Config.LeaderElectionRenewDeadline, err)
		case err != nil && ctx.Err() == nil:
			e.Log.Debug("renewing the lease failed, trying on", "error", err, "fence", fence.String())
		}
	}
}

func (e *elector) renewOnce(ctx context.Context, fence *k8s.Fence, acquired metav1.Time) error {
	ctx, cancel := context.WithTimeout(ctx, e.Config.requestTimeout())
	defer cancel()
	defer context.AfterFunc(fence.Context(), cancel)()
	next := e.record(metav1.Now(), e.Status().Transitions)
	next.AcquireTime = acquired
	err := e.lock.Update(ctx, next)
	if !apierrors.IsConflict(err) {
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
	now := metav1.Now()
	err := e.lock.Update(ctx, resourcelock.LeaderElectionRecord{
		LeaseDurationSeconds: 1, AcquireTime: now, RenewTime: now, LeaderTransitions: e.Status().Transitions,
	})
	if err != nil {
		e.Log.Warn("cannot release the lease; a standby takes it when it runs out", "error", err)
	}
}

// sleep waits and reports whether ctx is still alive.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
