// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive

import (
	"context"
	"slices"
	"time"

	"github.com/skep-operator/skep/runtime/internal/decl"
	"github.com/skep-operator/skep/runtime/internal/plan"
)

// rebuild makes modules and those that hold their values anew. With scope.mu
// held.
func (v *supervisor) rebuild(due []*plan.Module) {
	s := v.scope
	for _, m := range due {
		t := v.trouble[m]
		t.last, t.due = time.Now(), time.Time{}
	}
	steps := v.takeDown(due)
	for i := range s.blocked {
		if !slices.Contains(steps, i) {
			steps = append(steps, i)
		}
	}
	steps = slices.DeleteFunc(steps, func(i int) bool { return v.waits(s.order.Steps[i].Module) })
	ctx, cancel := context.WithTimeout(v.ctx, s.hive.options.startLimit)
	defer cancel()
	failures := s.launch(ctx, steps, v.waits)
	if v.ctx.Err() != nil {
		return // told to stop: what failed, failed because of that
	}
	v.note(failures)
	for _, m := range due {
		if !v.waits(m) && !v.isBlocked(m) {
			v.stand(m).OK("rebuilt")
			s.log().Info("module rebuilt", "module", m.Label())
		}
	}
}

func (v *supervisor) isBlocked(m *plan.Module) bool {
	for i := range v.scope.blocked {
		if v.scope.order.Steps[i].Module == m {
			return true
		}
	}
	return false
}

// takeDown stops modules and those that hold their values, and forgets the
// values, so that the next build makes new ones. It returns the steps that are
// down then. With scope.mu held.
func (v *supervisor) takeDown(modules []*plan.Module) []int {
	s := v.scope
	affected := v.affected(modules)
	held := func(m *plan.Module) bool { return s.order.Term == nil && v.heldElsewhere(m) }
	var steps []int
	for i, step := range s.order.Steps {
		if slices.Contains(affected, step.Module) && (isJobs(step) || !held(step.Module)) {
			steps = append(steps, i)
		}
	}
	ctx, cancel := context.WithTimeout(v.last, s.hive.options.stopLimit)
	defer cancel()
	for _, f := range s.runner.Stop(ctx, steps) {
		s.log().Error("hook failed to stop", "hook", s.order.Steps[f.Step].ID(), "error", f.Err)
	}
	v.logPanicsOf(affected)
	for _, m := range affected {
		v.leaveTerms(ctx, m)
		if !held(m) {
			v.clear(m)
		}
	}
	for _, i := range steps {
		s.blocked[i] = v.culprit(modules, s.order.Steps[i].Module)
	}
	return steps
}

// logPanicsOf takes care of jobs that panicked before they could be stopped: they
// are down now, and must not be held against what is built next.
func (v *supervisor) logPanicsOf(modules []*plan.Module) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.told = slices.DeleteFunc(v.told, func(f failure) bool {
		stopped := slices.Contains(modules, f.module)
		if stopped {
			v.log(f)
		}
		return stopped
	})
}

// isJobs reports whether a step is a job, or the jobs that a module adds.
func isJobs(s *plan.Step) bool { return s.Node == nil || s.Node.Kind == plan.Job }

// culprit is the module because of which another one is down.
func (v *supervisor) culprit(modules []*plan.Module, down *plan.Module) *plan.Module {
	if slices.Contains(modules, down) {
		return down
	}
	return modules[0]
}

// leaveTerms leaves terms that a process module has entered: it cannot do so
// itself any more.
func (v *supervisor) leaveTerms(ctx context.Context, m *plan.Module) {
	for _, t := range v.scope.hive.terms {
		if v.scope.order.Term == nil && entersTerm(m, v.scope.nodes, t.plan) {
			if err := t.Leave(ctx); err != nil {
				v.scope.log().Error("term left because its module failed", "term", t.plan.Name, "module", m.Label(), "error", err)
			}
		}
	}
}

func entersTerm(m *plan.Module, nodes []*plan.Node, t *plan.Term) bool {
	return slices.ContainsFunc(nodes, func(n *plan.Node) bool {
		return n.Owner() == m && slices.ContainsFunc(n.Deps(), func(d *plan.Node) bool { return d.Enters(t) })
	})
}

// clear takes the values of a module out of the scope, and gives up its room.
// Config structs and metrics stay, and so do what the hive offers to all and
// lasting values, which belong to the process.
func (v *supervisor) clear(m *plan.Module) {
	s := v.scope
	s.hive.building.Lock()
	defer s.hive.building.Unlock()
	for _, n := range s.nodes {
		if n.Owner() == m && !n.Metrics && (n.Kind != plan.Builtin || n.For != nil) {
			s.values.Forget(n)
		}
	}
	s.closeRoom(m)
}

// affected are the modules and all that hold values of theirs, directly or not.
// In the process it is the modules alone: what others hold stays.
func (v *supervisor) affected(modules []*plan.Module) []*plan.Module {
	affected := slices.Clone(modules)
	if v.scope.order.Term == nil {
		return affected
	}
	for i := 0; i < len(affected); i++ {
		for _, n := range v.scope.nodes {
			if takesFrom(n, affected[i], v.scope.order.Term) && !slices.Contains(affected, n.Owner()) {
				affected = append(affected, n.Owner())
			}
		}
	}
	return affected
}

// heldElsewhere reports whether values that a module has made in the process are
// held outside it, where they cannot be replaced. What it has in a term is
// outside, too.
func (v *supervisor) heldElsewhere(m *plan.Module) bool {
	return slices.ContainsFunc(v.scope.hive.plan.Nodes, func(n *plan.Node) bool {
		return n.Reached && (n.Owner() != m || n.Term != nil) && takesFrom(n, m, nil)
	})
}

// takesFrom reports whether a node takes a value that a module has made in the
// term, or in the process.
func takesFrom(n *plan.Node, m *plan.Module, t *plan.Term) bool {
	return slices.ContainsFunc(n.Deps(), func(d *plan.Node) bool {
		return d.Owner() == m && d.Term == t && d.Kind != plan.Config && d.Kind != plan.Builtin && d.Visibility != decl.PerModule && !d.Metrics
	})
}
