// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/skep-operator/skep/runtime/internal/build"
	"github.com/skep-operator/skep/runtime/internal/plan"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
	"github.com/skep-operator/skep/runtime/metrics"
)

// scope is a part of the graph that is built, started and stopped together:
// the process, or one stay in a term.
type scope struct {
	hive   *Hive
	order  *plan.Order
	nodes  []*plan.Node
	values *build.Values
	groups map[*plan.Module]*job.Runner
	super  *supervisor

	mu      sync.Mutex // one at a time uses the runner
	runner  *lifecycle.Runner
	blocked map[int]bool // steps that wait for a failed one
}

func (h *Hive) newScope(order *plan.Order, behind *build.Values) *scope {
	s := &scope{hive: h, order: order, values: build.NewValues(behind), groups: map[*plan.Module]*job.Runner{}, blocked: map[int]bool{}}
	for _, n := range h.plan.Nodes {
		if n.Reached && n.Term == order.Term {
			s.nodes = append(s.nodes, n)
		}
	}
	steps := make([]lifecycle.Step, len(order.Steps))
	for i, step := range order.Steps {
		steps[i] = lifecycle.Step{ID: step.ID()}
		for _, e := range step.After {
			if e.Reason != "" { // order, not need: its failure is no obstacle
				steps[i].Behind = append(steps[i].Behind, e.Step.Index)
			} else {
				steps[i].After = append(steps[i].After, e.Step.Index)
			}
		}
		if step.Node != nil {
			steps[i].StartTimeout, steps[i].StopTimeout = step.Node.Root.StartTimeout, step.Node.Root.StopTimeout
		}
	}
	s.runner = lifecycle.NewRunner(steps, s.observe)
	s.super = newSupervisor(s)
	return s
}

// name is the term's name, or "" in the process.
func (s *scope) name() string {
	if s.order.Term == nil {
		return ""
	}
	return s.order.Term.Name
}

func (s *scope) log() *slog.Logger { return s.hive.log.Logger("hive") }

// build runs the constructors of those nodes that have no value.
func (s *scope) build() map[*plan.Node]error {
	s.hive.building.Lock()
	defer s.hive.building.Unlock()
	var todo []*plan.Node
	for _, n := range s.nodes {
		switch {
		case s.values.Has(n):
		case n.Kind == plan.Builtin:
			s.values.Set(n, s.builtinValue(n))
		default:
			todo = append(todo, n)
		}
	}
	failed := build.Build(todo, s.values, func(n *plan.Node, took time.Duration) {
		s.hive.builtNode(n, took)
		if !s.hive.profile.full() {
			s.hive.profile.add("constructor", n.Name, s.name(), took)
		}
	})
	for _, n := range todo {
		if n.Metrics && failed[n] == nil {
			if err := s.hive.registerMetrics(n, s.values); err != nil {
				failed[n] = err
			}
		}
	}
	for i, step := range s.order.Steps {
		if s.runner.Started(i) {
			continue
		}
		s.runner.SetHook(i, s.hook(step, failed))
	}
	return failed
}

// hook is what a step starts. One whose constructor failed fails to start.
func (s *scope) hook(step *plan.Step, failed map[*plan.Node]error) lifecycle.Hook {
	if step.Node == nil {
		return s.group(step.Module)
	}
	if err := failed[step.Node]; err != nil {
		return lifecycle.Funcs{OnStart: func(context.Context) error { return err }}
	}
	value := s.values.Get(plan.Source{Node: step.Node})
	if step.Node.Kind == plan.Job {
		return s.group(step.Module).Hook(step.Node.Name, value.Interface().(job.Job))
	}
	hook, ok := value.Interface().(lifecycle.Hook)
	if !ok { // a nil interface
		return lifecycle.Funcs{}
	}
	return hook
}

// group is the job group of a module in this scope.
func (s *scope) group(m *plan.Module) *job.Runner {
	if g := s.groups[m]; g != nil {
		return g
	}
	id := m.Label()
	g := job.NewGroup(id, s.hive.log.Logger(id), s.hive.health.Reporter(id), job.Hooks{
		Ran: func(name string, took time.Duration, err error) { s.hive.jobs.ran(id, name, took, err) },
		Panicked: func(name string, value any, stack []byte) {
			s.super.failed(m, &lifecycle.PanicError{Value: value, Stack: stack})
		},
		Shutdown: s.hive.requestShutdown,
	})
	s.groups[m] = g
	return g
}

// metricsOwner keeps what constructors of a module register, and what goes
// away when they run again, apart from its lasting metrics.
func (s *scope) metricsOwner(m *plan.Module) string {
	return m.Label() + " in " + cmp.Or(s.name(), "the process")
}

// start starts all steps. In the process the first failure ends the start; in
// a term a module that fails is left to the supervisor, and only the end of
// ctx is an error.
func (s *scope) start(ctx context.Context) error {
	defer s.hive.profile.time("start", s.name())()
	s.super.start()
	s.mu.Lock()
	failures := s.runner.Start(ctx, s.runner.All())
	s.mu.Unlock()
	if s.order.Term != nil && ctx.Err() == nil {
		s.superviseFailures(failures)
		return nil
	}
	if len(failures) == 0 {
		return nil
	}
	errs := []error{}
	for _, f := range failures {
		if !errors.Is(f.Err, lifecycle.ErrBlocked) {
			errs = append(errs, fmt.Errorf("starting %s: %w", s.order.Steps[f.Step].ID(), f.Err))
		}
	}
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.hive.options.stopLimit)
	defer cancel()
	s.stop(stopCtx)
	return errors.Join(errs...)
}

// superviseFailures hands failed modules to the supervisor, and remembers the
// steps that wait for them.
func (s *scope) superviseFailures(failures []lifecycle.Failure) {
	for _, f := range failures {
		if errors.Is(f.Err, lifecycle.ErrBlocked) {
			s.blocked[f.Step] = true
			continue
		}
		s.super.failed(s.order.Steps[f.Step].Module, f.Err)
	}
}

// stop stops all steps and what runs beside them.
func (s *scope) stop(ctx context.Context) error {
	s.super.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := []error{}
	for _, f := range s.runner.Stop(ctx, s.runner.All()) {
		errs = append(errs, fmt.Errorf("stopping %s: %w", s.order.Steps[f.Step].ID(), f.Err))
	}
	if s.order.Term != nil {
		s.forgetTerm()
	}
	return errors.Join(errs...)
}

// forgetTerm takes the traces of a term that was left out of health and
// metrics.
func (s *scope) forgetTerm() {
	for _, m := range s.modules() {
		s.hive.health.Reporter(m.Label()).Gone()
		s.hive.metrics.Drop(s.metricsOwner(m))
	}
}

// modules are those with something in this scope, in declaration order.
func (s *scope) modules() []*plan.Module {
	seen := map[*plan.Module]bool{}
	for _, n := range s.nodes {
		if n.Kind != plan.Config && !(n.Kind == plan.Builtin && n.For == nil) {
			seen[n.Owner()] = true
		}
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b *plan.Module) int { return a.Index() - b.Index() })
}

const slowHook = 100 * time.Millisecond

// observe logs and records what steps do.
func (s *scope) observe(e lifecycle.Event) {
	if !e.Done {
		return
	}
	if e.Phase == lifecycle.Starting && !s.hive.profile.full() {
		s.hive.profile.add("hook", e.Step, s.name(), e.Took)
	}
	s.hive.tookStep(e)
	level := slog.LevelDebug
	if e.Took >= slowHook {
		level = slog.LevelInfo
	}
	s.log().Log(context.Background(), level, "hook done", "hook", e.Step, "phase", string(e.Phase), "took", e.Took.String(), "error", errText(e.Err))
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// registerMetrics registers what a metrics constructor has made.
func (h *Hive) registerMetrics(n *plan.Node, values *build.Values) error {
	collectors, err := metrics.Collectors(values.Get(plan.Source{Node: n}).Interface())
	if err != nil {
		return err
	}
	for _, c := range collectors {
		if err := h.metrics.Module(n.Module.Label()).Register(c); err != nil {
			return err
		}
	}
	return nil
}
