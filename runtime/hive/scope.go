// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/skep-operator/skep/runtime/internal/build"
	"github.com/skep-operator/skep/runtime/internal/plan"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// scope is a part of the graph that is built, started and stopped together:
// the process, or one stay in a term.
type scope struct {
	hive   *Hive
	order  *plan.Order
	nodes  []*plan.Node  // what is built here
	values *build.Values // changed under Hive.building only
	super  *supervisor

	mu      gate // held while anything is built, started or stopped
	runner  *lifecycle.Runner
	rooms   map[*plan.Module]*room
	blocked map[int]*plan.Module // steps that are down because of a module
}

func (h *Hive) newScope(order *plan.Order, behind *build.Values) *scope {
	s := &scope{
		hive: h, order: order, values: build.NewValues(behind), mu: newGate(),
		rooms: map[*plan.Module]*room{}, blocked: map[int]*plan.Module{},
	}
	for _, n := range h.plan.Nodes {
		if n.Reached && n.Term == order.Term {
			s.nodes = append(s.nodes, n)
		}
	}
	s.runner = lifecycle.NewRunner(s.steps(), s.observe)
	s.super = newSupervisor(s)
	return s
}

// steps are the steps of the order as the runner wants them. Hooks are put in
// place once they are built.
func (s *scope) steps() []lifecycle.Step {
	limits := &s.hive.options
	steps := make([]lifecycle.Step, len(s.order.Steps))
	for i, step := range s.order.Steps {
		steps[i] = lifecycle.Step{ID: step.ID(), StartTimeout: limits.startLimit, StopTimeout: limits.stopLimit}
		for _, e := range step.After {
			if e.Reason != "" { // order, not need: its failure is no obstacle
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

// start builds what is not built and starts all steps. In the process the first
// failure ends the start; in a term a module that fails is left to the
// supervisor, and only the end of ctx is an error. After an error nothing runs.
func (s *scope) start(ctx context.Context) error {
	defer s.hive.profile.time("start", s.name())()
	s.mu.Lock()
	failures := s.launch(ctx, s.runner.All(), nil)
	if len(failures) == 0 || s.order.Term != nil && ctx.Err() == nil {
		s.super.note(failures)
		s.super.start()
		s.mu.Unlock()
		return nil
	}
	s.mu.Unlock()
	errs := make([]error, 0, len(failures)+1)
	for _, f := range failures {
		errs = append(errs, f.err)
	}
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.hive.options.stopLimit)
	defer cancel()
	return errors.Join(append(errs, s.stop(stopCtx))...)
}

// launch builds what has no value yet and starts those of the given steps whose
// modules are whole. It returns what is wrong, once for each fault; steps that
// are down because of the fault of another module are remembered as blocked.
// Modules that waits names are left alone. With mu held.
func (s *scope) launch(ctx context.Context, steps []int, waits func(*plan.Module) bool) []failure {
	faults := s.faults(s.build(waits))
	failures := faults.own()
	var ready []int
	for _, i := range steps {
		step := s.order.Steps[i]
		if f, ok := faults[step.Module]; ok {
			s.blocked[i] = f.culprit
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
			s.blocked[f.Step] = s.obstacle(step)
		case f.Err == context.Cause(ctx) && tooLate: // was not even tried: once is enough
		default:
			tooLate = tooLate || f.Err == context.Cause(ctx)
			failures = append(failures, failure{module: step.Module, err: fmt.Errorf("starting %s: %w", step.ID(), f.Err)})
		}
	}
	return failures
}

// obstacle is the module of a step that another one waits for in vain.
func (s *scope) obstacle(step *plan.Step) *plan.Module {
	for _, e := range step.After {
		if e.Reason == "" && !s.runner.Started(e.Step.Index) {
			return e.Step.Module
		}
	}
	return step.Module
}

// stop stops all steps and what runs beside them. It returns when all has
// ended, or ctx has and what hangs is left behind.
func (s *scope) stop(ctx context.Context) error {
	s.super.stop(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, f := range s.runner.Stop(ctx, s.runner.All()) {
		errs = append(errs, fmt.Errorf("stopping %s: %w", s.order.Steps[f.Step].ID(), f.Err))
	}
	if s.order.Term != nil {
		s.vacate()
	}
	return errors.Join(errs...)
}

// vacate takes the traces of a term that was left out of health and metrics.
// With mu held.
func (s *scope) vacate() {
	for m := range s.rooms {
		s.closeRoom(m)
	}
	s.super.forgetAll()
}

const slowHook = 100 * time.Millisecond

// observe logs and records what steps do.
func (s *scope) observe(e lifecycle.Event) {
	if !e.Done {
		return
	}
	if e.Phase == lifecycle.Starting {
		s.hive.profile.add("hook", e.Step, s.name(), e.Took)
	}
	s.hive.tookStep(e)
	level := slog.LevelDebug
	if e.Took >= slowHook || s.order.Term != nil {
		level = slog.LevelInfo
	}
	attrs := []slog.Attr{slog.String("hook", e.Step), slog.String("phase", string(e.Phase)), slog.Duration("took", e.Took)}
	if e.Err != nil {
		attrs = append(attrs, slog.Any("error", e.Err))
	}
	s.log().LogAttrs(context.Background(), level, "hook done", attrs...)
}
