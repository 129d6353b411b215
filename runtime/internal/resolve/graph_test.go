// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package resolve_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/internal/decl"
	"github.com/skep-operator/skep/runtime/internal/resolve"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// Types to be provided and asked for.
type (
	a struct{ s string }
	b struct{}
	c struct{}
)

func hook() lifecycle.Hook         { return lifecycle.Funcs{} }
func hookA(*a) lifecycle.Hook      { return lifecycle.Funcs{} }
func hookB(*b) lifecycle.Hook      { return lifecycle.Funcs{} }
func hookAB(*a, *b) lifecycle.Hook { return lifecycle.Funcs{} }
func hookC(*c) lifecycle.Hook      { return lifecycle.Funcs{} }
func jobA(*a) job.Job              { return job.Job{} }
func newA() *a                     { return &a{} }
func newB() *b                     { return &b{} }
func newBfromA(*a) *b              { return &b{} }
func newC() *c                     { return &c{} }
func newCfromB(*b) *c              { return &c{} }
func addJobs(job.Group, *a)        {}
func decorateA(x *a) *a            { return x }
func decorateAwithB(x *a, _ *b) *a { return x }

// leader is the handle of the term leader.
type leader struct {
	cell.In
	Term lifecycle.Term `name:"leader"`
}

func elect(l leader) lifecycle.Hook { return lifecycle.Funcs{} }

var builtins = []resolve.BuiltinSpec{
	{Type: reflect.TypeFor[cell.ModuleInfo](), PerModule: true},
	{Type: reflect.TypeFor[job.Group](), PerModule: true},
	{Type: reflect.TypeFor[lifecycle.Shutdown]()},
}

// flags is config of every shape that a test needs.
type flags struct{ On, Inner bool }

func (f flags) Flags(*pflag.FlagSet) {}

// inputSteps is a plan as far as Reach, for a config struct.
func made(t *testing.T, f flags, cells ...cell.Cell) *resolve.Graph {
	t.Helper()
	p := resolve.New("", []decl.Node{cell.Set(cells...).Declaration()}, builtins)
	p.EvaluateConditions(func(typ reflect.Type) (reflect.Value, bool) {
		return reflect.ValueOf(f), typ == reflect.TypeFor[flags]()
	})
	p.ResolveParams()
	p.MarkReachable()
	return p
}

// fine is a plan without mistakes.
func fine(t *testing.T, cells ...cell.Cell) *resolve.Graph {
	t.Helper()
	p := made(t, flags{}, cells...)
	if err := p.Err(); err != nil {
		t.Fatal(err)
	}
	return p
}

// steps are the steps of a start order, each with those it comes after:
// "m.hook-x < m.hook-y".
func steps(t *testing.T, p *resolve.Graph, term int) []string {
	t.Helper()
	o := p.Orders()[term]
	if err := p.Err(); err != nil {
		t.Fatal(err)
	}
	var list []string
	for i, s := range o.Steps {
		if s.Index != i {
			t.Errorf("%s has index %d, stands at %d", s.ID(), s.Index, i)
		}
		line := s.ID()
		var after []string
		for _, e := range s.After {
			if e.Step.Index >= i {
				t.Errorf("%s stands before %s", s.ID(), e.Step.ID())
			}
			text := e.Step.ID()
			if e.Reason != "" {
				text += " (" + e.Reason + ")"
			}
			after = append(after, text)
		}
		slices.Sort(after)
		if len(after) > 0 {
			line += " < " + strings.Join(after, ", ")
		}
		list = append(list, line)
	}
	return list
}

func wantSteps(t *testing.T, cells []cell.Cell, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, steps(t, fine(t, cells...), 0)); diff != "" {
		t.Error(diff)
	}
}

// node is the only node of the given kind and name.
func node(t *testing.T, p *resolve.Graph, kind resolve.Kind, name string) *resolve.Node {
	t.Helper()
	var found *resolve.Node
	for _, n := range p.Nodes {
		if n.Kind == kind && n.Name == name && n.Owner() == n.Module {
			if found != nil {
				t.Fatalf("two nodes are called %s", name)
			}
			found = n
		}
	}
	if found == nil {
		t.Fatalf("no %s is called %s", kind, name)
	}
	return found
}

// sources are what a node takes, as module and function.
func sources(n *resolve.Node) []string {
	var list []string
	for _, p := range n.Params {
		for _, s := range p.Sources {
			text := s.Node.Module.Label() + "/" + s.Node.Name
			if s.Node.For != nil {
				text += " for " + s.Node.For.Label()
			}
			list = append(list, text)
		}
	}
	return list
}

func wantSources(t *testing.T, n *resolve.Node, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, sources(n)); diff != "" {
		t.Errorf("%s takes: %s", n.Describe(), diff)
	}
}
