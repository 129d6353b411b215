// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package leader

import (
	"context"
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
	"github.com/skep-operator/skep/resources/plan"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

const (
	leaseName = "cilium-operator-resource-lock"
	// pollPeriod is how often a standby looks at the lease, see Config.poll.
	// Watching it is not allowed by the stock role.
	pollPeriod = 250 * time.Millisecond
	// leaveLimit is how long the cells of a term may take to stop.
	leaveLimit = 45 * time.Second
)

// oldestAPI is the oldest API server that is served.
var oldestAPI = version.MustParseSemantic("1.16.0")

// elector campaigns for the lease, and runs the term while it holds it.
type elector struct {
	params
	lock   resourcelock.Interface
	leases coordinationclient.LeaseInterface
	me     string
	clock  k8s.Clock
	led    int // transitions of the last term, -1 before the first

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
	Plan    *plan.Plan `optional:"true"`
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
	e := &elector{params: p, leases: leases.Leases(namespace), me: host + "-" + rand.String(10), clock: k8s.SystemClock, led: -1}
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
	if e.Plan != nil {
		return e.plan(ctx)
	}
	if !e.awaitServer(ctx) {
		return ctx.Err()
	}
	seen, pause := sighting{}, e.Config.poll()
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
		seen = sighting{} // what holds now is somebody else's
		// Another replica may go first.
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
		if !job.Sleep(ctx, e.Config.poll()) {
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
		*seen = seen.missing(e.clock.Now())
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
	next := e.record(now, seen.transitions(e.me))
	put := e.lock.Create
	if seen.exists {
		put = e.lock.Update
	}
	err := put(ctx, next)
	if err == nil {
		e.setStatus(func(s *k8s.ElectionStatus) { s.Since, s.Transitions = now.Time, next.LeaderTransitions })
	}
	return err
}

func (e *elector) record(now metav1.Time, transitions int) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{
		HolderIdentity:       e.me,
		LeaseDurationSeconds: e.Config.leaseSeconds(),
		AcquireTime:          now, RenewTime: now,
		LeaderTransitions: transitions,
	}
}

// lead runs the term until the lease is lost or ctx ends; then the lease is
// released, after all cells of the term have stopped. seen is the lease as it was
// before. It reports false for a term that could not be entered.
func (e *elector) lead(ctx context.Context, fence *k8s.Fence, seen sighting) bool {
	defer fence.Close()
	e.announce()
	// Renewing goes on while the term is left: its cells may still write.
	holding, stopRenewing := context.WithCancelCause(context.WithoutCancel(ctx))
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		err := e.renew(holding, fence)
		if err != nil {
			fence.Close() // at once: the term may still be on its way in
		}
		stopRenewing(err)
	}()
	term, endTerm := context.WithCancel(ctx)
	defer context.AfterFunc(holding, endTerm)()
	settled := seen.settled(e.me, e.led, e.Config)
	entered := e.enter(term, fence, seen, settled)
	if !entered {
		endTerm() // another replica may fare better
	}
	<-term.Done()

	lost := holding.Err() != nil
	if lost {
		e.Metrics.Lost.Inc()
		e.Log.Warn("lost the lease, leaving the term", "error", context.Cause(holding))
	}
	e.leave(ctx)
	e.Leading.Settle(fence.Context())
	stopRenewing(nil)
	<-renewed
	held := fence.Check() == nil // it may have shut while the term was left
	fence.Close()
	if held && !lost && e.clock.Monotonic() >= settled { // else the next leader waits, as after a crash
		e.release(ctx)
	}
	e.Log.Info("stopped leading", "after", time.Since(e.Status().Since).Round(time.Millisecond).String())
	return entered
}

func (e *elector) announce() {
	e.Log.Info("leading", "identity", e.me)
	e.Metrics.Leading.Set(1)
	e.Metrics.Terms.Inc()
	e.setStatus(func(s *k8s.ElectionStatus) { s.Holder, s.Leading = e.me, true })
	e.Health.OK("leading")
}

// enter reports whether the term is entered, or its end has come already. seen
// is the lease as it was before, settled when nothing of its holder can arrive.
func (e *elector) enter(ctx context.Context, fence *k8s.Fence, seen sighting, settled time.Duration) bool {
	before := e.before(ctx, seen)
	e.led = e.Status().Transitions
	err := e.Leading.Open(fence, before)
	if err == nil {
		if !job.Sleep(ctx, settled-e.clock.Monotonic()) {
			return true
		}
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
