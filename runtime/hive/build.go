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
	"github.com/skep-operator/skep/runtime/internal/resolve"
	"github.com/skep-operator/skep/runtime/metrics"
)

// blockedError is the error of a node whose module, or that of a node that it
// needs, awaits its rebuild.
type blockedError struct{ module *resolve.Module }

func (e *blockedError) Error() string { return "waits for " + e.module.Label() }

// build runs the constructors of nodes without a value, and returns the errors of
// those that still have none. Modules for which waits is true are left out, and
// so are the nodes that need them. With mu held.
func (s *scope) build(waits func(*resolve.Module) bool) map[*resolve.Node]error {
	s.hive.buildMu.Lock()
	defer s.hive.buildMu.Unlock()
	failed := map[*resolve.Node]error{}
	w := &buildBlocks{values: s.values, waits: waits, known: map[*resolve.Node]*resolve.Module{}}
	var todo []*resolve.Node
	for _, n := range s.nodes {
		if s.values.Has(n) {
			continue
		}
		if m := w.blockedBy(n); m != nil {
			failed[n] = &blockedError{m}
		} else if n.Kind == resolve.Builtin {
			s.values.Set(n, s.builtinValue(n))
		} else {
			todo = append(todo, n)
		}
	}
	if len(todo) == 0 {
		return failed
	}
	_ = s.hive.timed(Event{Kind: EventBuilt, Term: s.name()}, func() error {
		s.runConstructors(todo, failed)
		return joinErrors(inDeclarationOrder(failed)...)
	})
	return failed
}

// runConstructors builds nodes and registers their metrics.
func (s *scope) runConstructors(nodes []*resolve.Node, failed map[*resolve.Node]error) {
	maps.Copy(failed, build.Build(nodes, s.values, func(n *resolve.Node, took time.Duration, err error) {
		s.hive.emit(Event{Kind: EventConstructed, Module: n.Owner().Label(), Name: n.Name, Term: s.name(), Took: took, Err: err, node: n})
	}))
	for _, n := range nodes {
		if n.Metrics && failed[n] == nil {
			if err := s.hive.registerMetrics(n, s.values); err != nil {
				failed[n] = &build.Error{Node: n, Err: err}
			}
		}
	}
}

// buildBlocks finds nodes that cannot be built because of a module that awaits
// its rebuild.
type buildBlocks struct {
	values *build.Values
	waits  func(*resolve.Module) bool // nil: none
	known  map[*resolve.Node]*resolve.Module
}

func (w *buildBlocks) blockedBy(n *resolve.Node) *resolve.Module {
	if w.waits == nil || w.values.Has(n) {
		return nil
	}
	if m, ok := w.known[n]; ok {
		return m
	}
	var found *resolve.Module
	if owner := n.Owner(); w.waits(owner) {
		found = owner
	} else {
		for _, d := range n.Deps() {
			if found = w.blockedBy(d); found != nil {
				break
			}
		}
	}
	w.known[n] = found
	return found
}

// registerMetrics registers the collectors of a metrics constructor.
func (h *Hive) registerMetrics(n *resolve.Node, values *build.Values) error {
	collectors, err := metrics.Collectors(values.Get(resolve.Source{Node: n}).Interface())
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

// inDeclarationOrder are the errors of a build in the order of declaration, one
// for each function that failed.
func inDeclarationOrder(failed map[*resolve.Node]error) []error {
	seen := map[*resolve.Node]bool{}
	var errs []error
	for _, n := range slices.SortedFunc(maps.Keys(failed), byID) {
		err := failed[n]
		if e := new(build.Error); errors.As(err, &e) {
			if seen[e.Node] {
				continue
			}
			seen[e.Node] = true
			err = e
		}
		errs = append(errs, err)
	}
	return errs
}

func byID(a, b *resolve.Node) int { return cmp.Compare(a.ID, b.ID) }

// moduleFault is the reason why a module is incomplete: one of its functions
// failed, or another module, the cause, is down.
type moduleFault struct {
	cause *resolve.Module
	err   error
}

type moduleFaults map[*resolve.Module]moduleFault

// moduleFaults are those of the modules, given those of their nodes.
func (s *scope) moduleFaults(failed map[*resolve.Node]error) moduleFaults {
	found := moduleFaults{}
	for _, n := range slices.SortedFunc(maps.Keys(failed), byID) {
		f := moduleFault{n.Owner(), failed[n]}
		if e := new(build.Error); errors.As(f.err, &e) {
			f = moduleFault{e.Node.Owner(), e}
		} else if w := new(blockedError); errors.As(f.err, &w) {
			f.cause = w.module
		}
		if known, ok := found[n.Owner()]; !ok || known.cause != n.Owner() && f.cause == n.Owner() {
			found[n.Owner()] = f
		}
	}
	return found
}

// rootCauses are the faults of modules that failed themselves and do not await a
// rebuild already.
func (fs moduleFaults) rootCauses() []failure {
	var list []failure
	for m, f := range fs {
		if f.cause == m && !errors.As(f.err, new(*blockedError)) {
			list = append(list, failure{module: m, err: f.err})
		}
	}
	slices.SortFunc(list, func(a, b failure) int { return a.module.Index() - b.module.Index() })
	return list
}
