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

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"

	"github.com/skep-operator/skep/resources/builtin"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/dryrun"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

const (
	leaseName = "cilium-operator-resource-lock"
	// pollPeriod is the interval of a standby's reads of the lease, see Config.poll. The stock role denies to watch it.
	pollPeriod = 250 * time.Millisecond
	// leaveLimit is the time limit for the modules of a term to stop.
	leaveLimit = 45 * time.Second
)

// oldestAPI is the oldest accepted version of the API server.
var oldestAPI = version.MustParseSemantic("1.16.0")

// elector acquires the lease, and runs the term while it holds it.
type elector struct {
	params
	lock     *lock
	identity string
	clock    leading.Clock
	// lastTerm is the lease of the last term, nil when another replica may have led since.
	lastTerm *coordinationv1.LeaseSpec

	mu     sync.Mutex
	status leading.ElectionStatus
}

type params struct {
	cell.In

	Config  Config
	Cluster cluster.Config
	Leading leading.Session
	Server  k8s.Server
	Term    lifecycle.Term `name:"leader"`
	Metrics *leaderMetrics
	Health  health.Reporter
	Log     *slog.Logger
	Stop    lifecycle.Shutdown
	Plan    *dryrun.Plan `optional:"true"`
}

func newElector(p params) (*elector, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("reading the hostname for the lease: %w", err)
	}
	namespace := p.Cluster.K8sNamespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	leases, err := builtin.NewClient[*coordinationv1.Lease](p.Leading.LeaseConfig(), leaseResource, namespace)
	if err != nil {
		return nil, err
	}
	e := &elector{
		params: p, identity: host + "-" + rand.String(10), clock: leading.SystemClock,
		lock: &lock{leases: leases, namespace: namespace, log: p.Log},
	}
	e.status = leading.ElectionStatus{Identity: e.identity, Lease: e.lock.describe()}
	return e, nil
}

func (e *elector) election() leading.Election { return e }

// Status implements leading.Election.
func (e *elector) Status() leading.ElectionStatus {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.status
}

func (e *elector) setStatus(change func(*leading.ElectionStatus)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(&e.status)
}

// run acquires the lease and leads, in turn, until ctx ends.
func (e *elector) run(ctx context.Context) error {
	if e.Plan != nil {
		return e.dryRun(ctx)
	}
	if !e.awaitServer(ctx) {
		return ctx.Err()
	}
	seen, pause := observedLease{}, e.Config.poll()
	for {
		fence, ok := e.campaign(ctx, &seen)
		if !ok {
			return ctx.Err()
		}
		if e.lead(ctx, fence, seen) {
			pause = e.Config.poll()
		} else {
			pause = min(2*pause, e.Config.LeaderElectionLeaseDuration)
		}
		seen = observedLease{} // another replica may hold the lease now
		// Another replica may acquire it first.
		if !job.Sleep(ctx, pause) {
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
				return false
			}
			return ctx.Err() == nil
		}
		e.Health.Degraded("waiting for the API server", err)
		if !job.Sleep(ctx, time.Second) {
			return false
		}
	}
}

// campaign returns when the lease is acquired, with the fence of the term. seen is the lease as it was before.
func (e *elector) campaign(ctx context.Context, seen *observedLease) (*leading.Fence, bool) {
	failing := false
	for {
		before := *seen
		fence, err := e.tryAcquire(ctx, seen)
		switch {
		case ctx.Err() != nil:
			return nil, false
		case fence != nil:
			return fence, true
		case errors.Is(err, errTaken): // the next read shows its holder
		case err != nil:
			e.Health.Degraded("cannot read or acquire the lease", err)
			if !failing {
				e.Log.Warn("cannot read or acquire the lease, retrying", "lease", e.lock.describe(), "error", err)
			}
			failing = true
		default:
			failing = false
			if before.lease == nil || before.holder() != seen.holder() {
				e.Log.Info("standing by", "leader", seen.holder())
			}
			e.reportStandby(*seen)
		}
		if !job.Sleep(ctx, e.Config.poll()) {
			return nil, false
		}
	}
}

func (e *elector) reportStandby(seen observedLease) {
	holder := seen.holder()
	e.setStatus(func(s *leading.ElectionStatus) {
		s.Holder, s.Transitions = holder, int(transitionsOf(seen.lease))
		s.Since = ptr.Deref(seen.lease.Spec.AcquireTime, metav1.MicroTime{}).Time
	})
	if holder == "" {
		e.Health.OK("standing by; the lease names no leader and was not released, waiting for its expiry as after a crash")
		return
	}
	e.Health.OK("standing by; " + holder + " leads")
}

// tryAcquire reads the lease and acquires it if it is free. It returns neither fence nor error while another replica may
// hold it.
func (e *elector) tryAcquire(ctx context.Context, seen *observedLease) (*leading.Fence, error) {
	ctx, cancel := context.WithTimeout(ctx, e.Config.requestTimeout())
	defer cancel()
	lease, err := e.lock.get(ctx)
	switch {
	case err != nil:
		return nil, err
	case lease == nil:
		*seen = seen.observeMissing(e.clock.Now())
	default:
		*seen = seen.observe(lease, e.clock.Now())
	}
	if !seen.isUninterrupted(e.lastTerm) {
		e.lastTerm = nil
	}
	from := e.clock.Now()
	if !seen.free(e.identity, e.Config, from) {
		return nil, nil
	}
	if err := e.lock.acquire(ctx, lease, e.spec(microNow(), seen.transitions(e.lastTerm))); err != nil {
		return nil, err
	}
	e.setStatus(func(s *leading.ElectionStatus) {
		s.Since, s.Transitions = e.lock.stored.Spec.AcquireTime.Time, int(transitionsOf(e.lock.stored))
	})
	return leading.NewFence(e.clock, from, e.Config.LeaderElectionRenewDeadline), nil
}

// microNow is the time with the precision of a lease.
func microNow() metav1.MicroTime { return metav1.NewMicroTime(time.Now().Truncate(time.Microsecond)) }

// spec is the lease as held by this replica, renewed now.
func (e *elector) spec(acquired metav1.MicroTime, transitions int32) coordinationv1.LeaseSpec {
	return coordinationv1.LeaseSpec{
		HolderIdentity: &e.identity, LeaseDurationSeconds: ptr.To(e.Config.leaseSeconds()),
		AcquireTime: &acquired, RenewTime: ptr.To(microNow()),
		LeaseTransitions: &transitions,
	}
}

// lead runs the term until the lease is lost or ctx ends; then it releases the lease, after all modules of the term have
// stopped. seen is the lease as it was before. It reports false for a term that could not be entered.
func (e *elector) lead(ctx context.Context, fence *leading.Fence, seen observedLease) bool {
	defer fence.Close()
	e.reportLeading()
	safeAfter, before := seen.safeAfter(e.lastTerm, e.Config), seen.predecessorProgress(e.lastTerm)
	e.lastTerm = e.lock.stored.Spec.DeepCopy()
	// Renewing continues while the term is left: its modules may still write.
	holding, stopRenewing := context.WithCancelCause(context.WithoutCancel(ctx))
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		err := e.renew(holding, fence)
		if err != nil {
			fence.Close() // at once: the term may still be entered
		}
		stopRenewing(err)
	}()
	term, endTerm := context.WithCancel(ctx)
	defer context.AfterFunc(holding, endTerm)()
	entered := e.enterTerm(term, fence, before, safeAfter)
	if !entered {
		endTerm() // another replica may succeed
	}
	<-term.Done()

	lost := holding.Err() != nil
	if lost {
		e.Metrics.Lost.Inc()
		e.Log.Warn("lost the lease, leaving the term", "error", context.Cause(holding))
	}
	e.leaveTerm(ctx)
	e.Leading.DrainWrites(fence.Context())
	stopRenewing(nil)
	<-renewed
	held := fence.Check() == nil // it may have closed while the term was left
	fence.Close()
	if held && !lost && e.clock.Monotonic() >= safeAfter { // else the next leader waits for the expiry, as after a crash
		e.release(ctx)
	}
	e.Log.Info("stopped leading", "after", time.Since(e.Status().Since).Round(time.Millisecond).String())
	return entered
}

func (e *elector) reportLeading() {
	e.Log.Info("leading", "identity", e.identity)
	e.Metrics.Leading.Set(1)
	e.Metrics.Terms.Inc()
	e.setStatus(func(s *leading.ElectionStatus) { s.Holder, s.Leading = e.identity, true })
	e.Health.OK("leading")
}

// enterTerm reports whether the term is entered, or has ended already. before is the write progress of predecessors, whose
// last write has arrived by safeAfter.
func (e *elector) enterTerm(ctx context.Context, fence *leading.Fence, before *leading.WriteProgress, safeAfter time.Duration) bool {
	err := e.Leading.Open(fence, before)
	if err == nil {
		if !job.Sleep(ctx, safeAfter-e.clock.Monotonic()) {
			return true
		}
		err = e.Term.Enter(ctx)
	}
	if err != nil && ctx.Err() == nil {
		e.Health.Degraded("cannot lead", err)
		e.Log.Error("cannot lead, releasing the lease", "error", err)
		return false
	}
	return true
}

func (e *elector) leaveTerm(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveLimit)
	defer cancel()
	if err := e.Term.Leave(ctx); err != nil {
		e.Log.Error("leaving the term failed", "error", err)
	}
	e.Metrics.Leading.Set(0)
	e.setStatus(func(s *leading.ElectionStatus) { s.Leading, s.Holder = false, "" })
}
