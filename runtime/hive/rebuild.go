// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/skep-operator/skep/runtime/internal/decl"
	"github.com/skep-operator/skep/runtime/internal/resolve"
)

// rebuild recreates modules and those that use their values. With scope.mu held.
func (v *supervisor) rebuild(due []*resolve.Module) {
	s := v.scope
	for _, m := range due {
		b := v.backoffs[m]
		b.lastTry, b.nextTry = time.Now(), time.Time{}
	}
	steps := v.stopModules(due)
	for i := range s.blocked {
		if !slices.Contains(steps, i) {
			steps = append(steps, i)
		}
	}
	steps = slices.DeleteFunc(steps, func(i int) bool { return v.awaitsRebuild(s.order.Steps[i].Module) })
	ctx, cancel := context.WithTimeout(v.ctx, s.hive.options.startTimeout)
	defer cancel()
	failures := s.buildAndStart(ctx, steps, v.awaitsRebuild)
	if v.ctx.Err() != nil {
		return // the scope is stopping, which is why steps failed
	}
	v.handleFailures(failures)
	for _, m := range due {
		if !v.awaitsRebuild(m) && !v.isBlocked(m) {
			v.report(m).OK("rebuilt")
			s.hive.emit(Event{Kind: EventModuleRebuilt, Module: m.Label(), Term: s.name()})
		}
	}
}

func (v *supervisor) isBlocked(m *resolve.Module) bool {
	for i := range v.scope.blocked {
		if v.scope.order.Steps[i].Module == m {
			return true
		}
	}
	return false
}

// stopModules stops modules and those that use their values, and drops the
// values, so that the next build makes new ones. It returns the steps that are
// down then. With scope.mu held.
func (v *supervisor) stopModules(modules []*resolve.Module) []int {
	s := v.scope
	affected := v.affected(modules)
	kept := func(m *resolve.Module) bool { return s.order.Term == nil && v.hasOutsideUsers(m) }
	var steps []int
	for i, step := range s.order.Steps {
		if slices.Contains(affected, step.Module) && (isJobs(step) || !kept(step.Module)) {
			steps = append(steps, i)
		}
	}
	ctx, cancel := context.WithTimeout(v.stopCtx, s.hive.options.stopTimeout)
	defer cancel()
	v.stopSteps(ctx, steps)
	v.dropPanicsOf(affected)
	for _, m := range affected {
		v.leaveTerms(ctx, m)
		if !kept(m) {
			v.dropValues(m)
		}
	}
	for _, i := range steps {
		s.blocked[i] = causeOf(modules, s.order.Steps[i].Module)
	}
	return steps
}

// stopSteps stops steps and emits an event for each module that had one running.
func (v *supervisor) stopSteps(ctx context.Context, steps []int) {
	s := v.scope
	var stopped []*resolve.Module
	for _, i := range steps {
		if m := s.order.Steps[i].Module; s.runner.Started(i) && !slices.Contains(stopped, m) {
			stopped = append(stopped, m)
		}
	}
	errs := map[*resolve.Module]error{}
	for _, f := range s.runner.Stop(ctx, steps) {
		step := s.order.Steps[f.Step]
		errs[step.Module] = errors.Join(errs[step.Module], fmt.Errorf("%s: %w", step.ID(), f.Err))
	}
	for _, m := range stopped {
		s.hive.emit(Event{Kind: EventModuleStopped, Module: m.Label(), Term: s.name(), Err: errs[m]})
	}
}

// dropPanicsOf removes queued failures of modules that were stopped: they do not
// count for the instances that are built next.
func (v *supervisor) dropPanicsOf(modules []*resolve.Module) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.queue = slices.DeleteFunc(v.queue, func(f failure) bool {
		stopped := slices.Contains(modules, f.module)
		if stopped {
			v.emitFailure(f)
		}
		return stopped
	})
}

// isJobs reports whether a step is a job, or the jobs that a module adds.
func isJobs(s *resolve.Step) bool { return s.Node == nil || s.Node.Kind == resolve.Job }

// causeOf is the module because of which another one is down.
func causeOf(modules []*resolve.Module, down *resolve.Module) *resolve.Module {
	if slices.Contains(modules, down) {
		return down
	}
	return modules[0]
}

// leaveTerms leaves the terms that a process module has entered and, since it
// failed, cannot leave itself.
func (v *supervisor) leaveTerms(ctx context.Context, m *resolve.Module) {
	for _, t := range v.scope.hive.terms {
		if v.scope.order.Term == nil && usesTermHandle(m, v.scope.nodes, t.info) {
			_ = t.leave(ctx, m.Label()) // the event has the error
		}
	}
}

func usesTermHandle(m *resolve.Module, nodes []*resolve.Node, t *resolve.Term) bool {
	return slices.ContainsFunc(nodes, func(n *resolve.Node) bool {
		return n.Owner() == m && slices.ContainsFunc(n.Deps(), func(d *resolve.Node) bool { return d.IsTermHandle(t) })
	})
}

// dropValues removes the values of a module and tears its instance down. Config
// structs, metrics, process-wide builtins and process values of a term's module
// stay.
func (v *supervisor) dropValues(m *resolve.Module) {
	s := v.scope
	s.hive.buildMu.Lock()
	defer s.hive.buildMu.Unlock()
	for _, n := range s.nodes {
		if n.Owner() == m && !n.Metrics && (n.Kind != resolve.Builtin || n.For != nil) {
			s.values.Forget(n)
		}
	}
	s.teardownModule(m)
}

// affected are the modules and all that use values of theirs, directly or not.
// In the process it is the modules alone: values in use elsewhere stay.
func (v *supervisor) affected(modules []*resolve.Module) []*resolve.Module {
	affected := slices.Clone(modules)
	if v.scope.order.Term == nil {
		return affected
	}
	for i := 0; i < len(affected); i++ {
		for _, n := range v.scope.nodes {
			if usesValueOf(n, affected[i], v.scope.order.Term) && !slices.Contains(affected, n.Owner()) {
				affected = append(affected, n.Owner())
			}
		}
	}
	return affected
}

// hasOutsideUsers reports whether values that a module made in the process are
// used outside it, where they cannot be replaced. Its own nodes in a term are
// outside, too.
func (v *supervisor) hasOutsideUsers(m *resolve.Module) bool {
	return slices.ContainsFunc(v.scope.hive.graph.Nodes, func(n *resolve.Node) bool {
		return n.Reached && (n.Owner() != m || n.Term != nil) && usesValueOf(n, m, nil)
	})
}

// usesValueOf reports whether a node takes a value that a module has made in the
// term, or in the process.
func usesValueOf(n *resolve.Node, m *resolve.Module, t *resolve.Term) bool {
	return slices.ContainsFunc(n.Deps(), func(d *resolve.Node) bool {
		return d.Owner() == m && d.Term == t && d.Kind != resolve.Config && d.Kind != resolve.Builtin && d.Visibility != decl.PerModule && !d.Metrics
	})
}
