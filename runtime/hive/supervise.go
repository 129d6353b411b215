// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/skep-operator/skep/runtime/internal/build"
	"github.com/skep-operator/skep/runtime/internal/decl"
	"github.com/skep-operator/skep/runtime/internal/plan"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// supervisor rebuilds modules that panicked or did not start.
//
// What a module may have left half-written goes away with it: its constructors
// run again, and so do those of modules that hold its values. In the process,
// where others hold a module's values for good, only its jobs run again.
type supervisor struct {
	scope  *scope
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu       sync.Mutex
	failures []failure
	wake     chan struct{}

	trouble map[*plan.Module]*trouble // of the goroutine
}

type failure struct {
	module *plan.Module
	err    error // nil: the pause before a rebuild is over
}

// trouble is the history of a module that failed.
type trouble struct {
	inARow int
	last   time.Time // of the last rebuild
	due    bool      // a rebuild is waiting for its pause
}

func newSupervisor(s *scope) *supervisor {
	return &supervisor{scope: s, wake: make(chan struct{}, 1), trouble: map[*plan.Module]*trouble{}}
}

func (v *supervisor) start() {
	v.ctx, v.cancel = context.WithCancel(context.Background())
	v.done.Go(v.run)
}

// stop waits until no rebuild is going on and none will begin.
func (v *supervisor) stop() {
	v.cancel()
	v.done.Wait()
}

// failed tells about a module. It does not block, and may be called from a job.
func (v *supervisor) failed(m *plan.Module, err error) { v.tell(failure{m, err}) }

func (v *supervisor) tell(f failure) {
	v.mu.Lock()
	v.failures = append(v.failures, f)
	v.mu.Unlock()
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

func (v *supervisor) run() {
	for {
		select {
		case <-v.ctx.Done():
			return
		case <-v.wake:
		}
		v.mu.Lock()
		failures := v.failures
		v.failures = nil
		v.mu.Unlock()
		for _, f := range failures {
			if v.ctx.Err() != nil {
				return
			}
			v.handle(f)
		}
	}
}

func (v *supervisor) handle(f failure) {
	t := v.trouble[f.module]
	if t == nil {
		t = &trouble{}
		v.trouble[f.module] = t
	}
	if f.err == nil {
		t.due = false
		v.rebuild(f.module, t)
		return
	}
	v.logFailure(f)
	if t.due {
		return
	}
	if time.Since(t.last) > v.scope.hive.options.retryLimit {
		t.inARow = 0
	}
	t.inARow++
	pause := v.pause(t, f.err)
	v.report(f, t, pause)
	if pause == 0 {
		v.rebuild(f.module, t)
		return
	}
	t.due = true
	timer := time.AfterFunc(pause, func() { v.tell(failure{module: f.module}) })
	context.AfterFunc(v.ctx, func() { timer.Stop() })
}

// pause is how long to wait before a rebuild. A panic is often the fault of
// one moment, so the first two cost none.
func (v *supervisor) pause(t *trouble, err error) time.Duration {
	free := 0
	if isPanic(err) {
		free = 2
	}
	if t.inARow <= free {
		return 0
	}
	o := &v.scope.hive.options
	return min(o.retryFirst<<min(t.inARow-free-1, 20), o.retryLimit)
}

func isPanic(err error) bool {
	if p := new(lifecycle.PanicError); errors.As(err, &p) {
		return true
	}
	b := new(build.Error)
	return errors.As(err, &b) && b.Panicked
}

func (v *supervisor) logFailure(f failure) {
	log := v.scope.hive.log.Logger(f.module.Label())
	if p := new(lifecycle.PanicError); errors.As(f.err, &p) {
		log.Error("module panicked", "panic", fmt.Sprint(p.Value), "stack", string(p.Stack))
		return
	}
	log.Error("module failed to start", "error", f.err)
}

func (v *supervisor) report(f failure, t *trouble, pause time.Duration) {
	h := v.scope.hive.health.Reporter(f.module.Label())
	switch {
	case pause == 0:
		h.Degraded("rebuilding", f.err)
	default:
		h.Degraded(fmt.Sprintf("failed %d times in a row; next try in %s", t.inARow, pause), f.err)
	}
}

// rebuild makes a module and those that hold its values anew.
func (v *supervisor) rebuild(m *plan.Module, t *trouble) {
	s := v.scope
	t.last = time.Now()
	modules := v.affected(m)
	var steps []int
	for i, step := range s.order.Steps {
		if slices.Contains(modules, step.Module) {
			steps = append(steps, i)
		}
	}
	ctx, cancel := context.WithTimeout(v.ctx, s.hive.options.startLimit)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.runner.Stop(ctx, steps) {
		s.log().Error("hook failed to stop", "hook", s.order.Steps[f.Step].ID(), "error", f.Err)
	}
	if !v.heldElsewhere(m) {
		v.forget(modules)
	}
	s.build()
	steps = append(steps, slices.Collect(maps.Keys(s.blocked))...)
	clear(s.blocked)
	failures := s.runner.Start(ctx, steps)
	if v.ctx.Err() != nil {
		return
	}
	if len(failures) == 0 {
		s.hive.health.Reporter(m.Label()).OK("rebuilt")
	}
	s.superviseFailures(failures)
}

// forget takes the values of modules out of the scope, so that the next build
// makes new ones. Lasting values and metrics stay: they are the process'.
func (v *supervisor) forget(modules []*plan.Module) {
	v.scope.hive.building.Lock()
	defer v.scope.hive.building.Unlock()
	for _, n := range v.scope.nodes {
		if slices.Contains(modules, n.Owner()) && n.Kind != plan.Config && !n.Metrics {
			v.scope.values.Forget(n)
		}
	}
	for _, m := range modules {
		v.scope.hive.metrics.Drop(v.scope.metricsOwner(m))
		delete(v.scope.groups, m)
	}
}

// affected are the module and all that hold values of it, directly or not. In
// the process it is the module alone.
func (v *supervisor) affected(m *plan.Module) []*plan.Module {
	modules := []*plan.Module{m}
	if v.scope.order.Term == nil {
		return modules
	}
	for i := 0; i < len(modules); i++ {
		for _, n := range v.scope.nodes {
			if takesFrom(n, modules[i]) && !slices.Contains(modules, n.Owner()) {
				modules = append(modules, n.Owner())
			}
		}
	}
	return modules
}

// heldElsewhere reports whether values of a process module are held outside
// it, where they cannot be replaced.
func (v *supervisor) heldElsewhere(m *plan.Module) bool {
	if v.scope.order.Term != nil {
		return false
	}
	return slices.ContainsFunc(v.scope.hive.plan.Nodes, func(n *plan.Node) bool {
		return n.Reached && n.Owner() != m && takesFrom(n, m)
	})
}

// takesFrom reports whether a node takes a value that a module has made.
func takesFrom(n *plan.Node, m *plan.Module) bool {
	for _, p := range n.Params {
		for _, s := range p.Sources {
			if s.Node.Owner() == m && s.Node.Kind != plan.Config && s.Node.Kind != plan.Builtin && s.Node.Visibility != decl.PerModule {
				return true
			}
		}
	}
	return false
}
