// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/skep-operator/skep/runtime/internal/build"
	"github.com/skep-operator/skep/runtime/internal/plan"
	"github.com/skep-operator/skep/runtime/metrics"
)

// waitError stands for a node that is not built because a module that it needs,
// or its own, waits to be rebuilt.
type waitError struct{ module *plan.Module }

func (e *waitError) Error() string { return "waits for " + e.module.Label() }

// build runs the constructors of those nodes that have no value, and returns
// why some still have none. Modules that waits names are left alone, and so is
// what needs them. With mu held.
func (s *scope) build(waits func(*plan.Module) bool) map[*plan.Node]error {
	s.hive.building.Lock()
	defer s.hive.building.Unlock()
	failed := map[*plan.Node]error{}
	w := &waiting{values: s.values, waits: waits, known: map[*plan.Node]*plan.Module{}}
	var todo []*plan.Node
	for _, n := range s.nodes {
		if s.values.Has(n) {
			continue
		}
		if m := w.waitsFor(n); m != nil {
			failed[n] = &waitError{m}
		} else if n.Kind == plan.Builtin {
			s.values.Set(n, s.builtinValue(n))
		} else {
			todo = append(todo, n)
		}
	}
	if len(todo) == 0 {
		return failed
	}
	defer s.hive.profile.time("build", s.name())()
	maps.Copy(failed, build.Build(todo, s.values, func(n *plan.Node, took time.Duration) {
		s.hive.builtNode(n, took)
		s.hive.profile.add("constructor", n.Name, s.name(), took)
	}))
	for _, n := range todo {
		if n.Metrics && failed[n] == nil {
			if err := s.hive.registerMetrics(n, s.values); err != nil {
				failed[n] = &build.Error{Node: n, Err: err}
			}
		}
	}
	return failed
}

// waiting finds nodes that cannot be built because of a module that waits.
type waiting struct {
	values *build.Values
	waits  func(*plan.Module) bool // nil: none does
	known  map[*plan.Node]*plan.Module
}

func (w *waiting) waitsFor(n *plan.Node) *plan.Module {
	if w.waits == nil || w.values.Has(n) {
		return nil
	}
	if m, ok := w.known[n]; ok {
		return m
	}
	var found *plan.Module
	if owner := n.Owner(); w.waits(owner) {
		found = owner
	} else {
		for _, d := range n.Deps() {
			if found = w.waitsFor(d); found != nil {
				break
			}
		}
	}
	w.known[n] = found
	return found
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

// inOrder are the errors of a build, each failed function once, in the order of
// declaration.
func inOrder(failed map[*plan.Node]error) []error {
	told := map[*plan.Node]bool{}
	var errs []error
	for _, n := range slices.SortedFunc(maps.Keys(failed), byID) {
		err := failed[n]
		if e := new(build.Error); errors.As(err, &e) {
			if told[e.Node] {
				continue
			}
			told[e.Node] = true
			err = e
		}
		errs = append(errs, err)
	}
	return errs
}

func byID(a, b *plan.Node) int { return cmp.Compare(a.ID, b.ID) }

// fault is why a module is not whole: a function of its own that failed, or
// another module.
type fault struct {
	culprit *plan.Module
	err     error
}

type faults map[*plan.Module]fault

// faults are those of the modules, given those of their nodes.
func (s *scope) faults(failed map[*plan.Node]error) faults {
	found := faults{}
	for _, n := range slices.SortedFunc(maps.Keys(failed), byID) {
		f := fault{n.Owner(), failed[n]}
		if e := new(build.Error); errors.As(f.err, &e) {
			f = fault{e.Node.Owner(), e}
		} else if w := new(waitError); errors.As(f.err, &w) {
			f.culprit = w.module
		}
		if known, ok := found[n.Owner()]; !ok || known.culprit != n.Owner() && f.culprit == n.Owner() {
			found[n.Owner()] = f
		}
	}
	return found
}

// own are the faults of modules that are to blame themselves and do not wait
// already.
func (fs faults) own() []failure {
	var list []failure
	for m, f := range fs {
		if f.culprit == m && !errors.As(f.err, new(*waitError)) {
			list = append(list, failure{module: m, err: f.err})
		}
	}
	slices.SortFunc(list, func(a, b failure) int { return a.module.Index() - b.module.Index() })
	return list
}
