// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/skep-operator/skep/runtime/internal/build"
	"github.com/skep-operator/skep/runtime/internal/resolve"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// scope is a part of the graph that is built, started and stopped together:
// the process, or a term from its entry to its end.
type scope struct {
	hive       *Hive
	order      *resolve.Order
	nodes      []*resolve.Node // what is built here
	values     *build.Values   // changed with Hive.buildMu held
	supervisor *supervisor
	slow       *slowStarts

	mu      ctxMutex // held while anything is built, started or stopped
	runner  *lifecycle.Runner
	modules map[*resolve.Module]*moduleInstance
	blocked map[int]*resolve.Module // steps that are down because of a module
}

func (h *Hive) newScope(order *resolve.Order, behind *build.Values) *scope {
	s := &scope{
		hive: h, order: order, values: build.NewValues(behind), mu: newCtxMutex(),
		modules: map[*resolve.Module]*moduleInstance{}, blocked: map[int]*resolve.Module{},
	}
	for _, n := range h.graph.Nodes {
		if n.Reached && n.Term == order.Term {
			s.nodes = append(s.nodes, n)
		}
	}
	s.slow = &slowStarts{scope: s, pending: map[string]*slowStart{}}
	s.runner = lifecycle.NewRunner(s.steps(), s.observe)
	s.supervisor = newSupervisor(s)
	return s
}

// steps are the steps of the order for the runner. Their hooks are set once they
// are built.
func (s *scope) steps() []lifecycle.Step {
	limits := &s.hive.options
	steps := make([]lifecycle.Step, len(s.order.Steps))
	for i, step := range s.order.Steps {
		steps[i] = lifecycle.Step{ID: step.ID(), StartTimeout: limits.startTimeout, StopTimeout: limits.stopTimeout}
		for _, e := range step.After {
			if e.Reason != "" { // not a need: may fail
				steps[i].Behind = append(steps[i].Behind, e.Step.Index)
			} else {
				steps[i].After = append(steps[i].After, e.Step.Index)
			}
		}
		if step.Node == nil {
			continue
		}
		if d := step.Node.Root.StartTimeout; d > 0 {
			steps[i].StartTimeout = d
		}
		if d := step.Node.Root.StopTimeout; d > 0 {
			steps[i].StopTimeout = d
		}
	}
	return steps
}

// name is the term's name, or "" in the process.
func (s *scope) name() string {
	if s.order.Term == nil {
		return ""
	}
	return s.order.Term.Name
}

func (s *scope) log() *slog.Logger { return s.hive.log.Logger("hive") }

// start builds and starts all of the scope. In the process the first failure ends
// the start; in a term the supervisor retries modules that fail, and only the end
// of ctx is an error. After an error nothing runs.
func (s *scope) start(ctx context.Context) error {
	s.mu.Lock()
	failures := s.buildAndStart(ctx, s.runner.All(), nil)
	if len(failures) == 0 || s.order.Term != nil && ctx.Err() == nil {
		s.supervisor.handleFailures(failures)
		s.supervisor.start()
		s.mu.Unlock()
		return nil
	}
	s.mu.Unlock()
	errs := make([]error, 0, len(failures)+1)
	for _, f := range failures {
		errs = append(errs, f.err)
	}
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.hive.options.stopTimeout)
	defer cancel()
	return errors.Join(append(errs, s.stop(stopCtx))...)
}

// buildAndStart builds nodes without a value and starts those of the given steps
// whose modules are complete. It returns one failure for each root cause; steps
// that are down because of another module are recorded as blocked. Modules for
// which waits is true are left out. With mu held.
func (s *scope) buildAndStart(ctx context.Context, steps []int, waits func(*resolve.Module) bool) []failure {
	faults := s.moduleFaults(s.build(waits))
	failures := faults.rootCauses()
	var ready []int
	for _, i := range steps {
		step := s.order.Steps[i]
		if f, ok := faults[step.Module]; ok {
			s.blocked[i] = f.cause
			continue
		}
		delete(s.blocked, i)
		if !s.runner.Started(i) {
			s.runner.SetHook(i, s.hook(step))
			ready = append(ready, i)
		}
	}
	tooLate := false
	for _, f := range s.runner.Start(ctx, ready) {
		step := s.order.Steps[f.Step]
		switch {
		case f.Err == lifecycle.ErrBlocked:
			s.blocked[f.Step] = s.blockingModule(step)
		case f.Err == context.Cause(ctx) && tooLate: // was not attempted: reported once
		default:
			tooLate = tooLate || f.Err == context.Cause(ctx)
			failures = append(failures, failure{module: step.Module, err: fmt.Errorf("starting %s: %w", step.ID(), f.Err)})
		}
	}
	return failures
}

// blockingModule is the module of a step that has not started and that another
// step needs.
func (s *scope) blockingModule(step *resolve.Step) *resolve.Module {
	for _, e := range step.After {
		if e.Reason == "" && !s.runner.Started(e.Step.Index) {
			return e.Step.Module
		}
	}
	return step.Module
}

// stop stops the supervisor and all steps. It returns when all have stopped, or
// when ctx has ended, and leaves hooks that hang behind.
func (s *scope) stop(ctx context.Context) error {
	s.supervisor.stop(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, f := range s.runner.Stop(ctx, s.runner.All()) {
		errs = append(errs, fmt.Errorf("stopping %s: %w", s.order.Steps[f.Step].ID(), f.Err))
	}
	if s.order.Term != nil {
		s.teardown()
	}
	return errors.Join(errs...)
}

// teardown removes the health and the metrics of a term that was left. With mu
// held.
func (s *scope) teardown() {
	for m := range s.modules {
		s.teardownModule(m)
	}
	s.supervisor.clearReports()
}

// observe emits the events of steps.
func (s *scope) observe(e lifecycle.Event) {
	kind := EventHookStopped
	if e.Phase == lifecycle.Starting {
		kind = EventHookStarted
		s.slow.observe(e)
	}
	if e.Done {
		s.hive.emit(Event{Kind: kind, Module: s.order.Steps[e.Index].Module.Label(), Name: e.Step, Term: s.name(), Took: e.Took, Err: e.Err})
	}
}
