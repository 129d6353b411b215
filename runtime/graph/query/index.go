// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package query

import (
	"slices"
	"strings"

	"github.com/skep-operator/skep/runtime/graph"
)

// Index is a graph with its lookup tables.
type Index struct {
	*graph.Graph
	ByLabel   map[string]*graph.Module // by label
	Position  map[string]int           // of modules, by label
	users     [][]use                  // by node
	providers map[string][]*graph.Node // by what they provide; not builtins, not instances
	Nested    map[string][]string
	labels    []string // of the modules of nodes
}

// use is a node that takes a value of another.
type use struct {
	node *graph.Node
	need *graph.Need
}

// NewIndex indexes a graph, which must not change afterwards.
func NewIndex(g *graph.Graph) *Index {
	x := &Index{
		Graph: g, ByLabel: map[string]*graph.Module{}, Position: map[string]int{},
		users: make([][]use, len(g.Nodes)), providers: map[string][]*graph.Node{},
		Nested: map[string][]string{}, labels: make([]string, len(g.Nodes)),
	}
	for i := range g.Modules {
		m := &g.Modules[i]
		x.ByLabel[m.Label()], x.Position[m.Label()] = m, i
		if m.Parent != "" {
			x.Nested[m.Parent] = append(x.Nested[m.Parent], m.ID)
		}
	}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		x.labels[i] = (&graph.Module{ID: n.Module, Term: n.Term}).Label()
		if n.Kind == graph.KindBuiltin {
			x.labels[i] = graph.HiveLabel
		}
		for j := range n.Needs {
			for _, from := range n.Needs[j].From {
				x.users[from] = append(x.users[from], use{n, &n.Needs[j]})
			}
		}
		if n.Kind != graph.KindBuiltin && n.Kind != graph.KindDecorator && !n.IsInstance() {
			for _, p := range n.Provides {
				x.providers[p] = append(x.providers[p], n)
			}
		}
	}
	return x
}

// CellOf is the label of the module that a node is declared in.
func (x *Index) CellOf(n *graph.Node) string { return x.labels[n.ID] }

// enabled reports whether the module of a node is on.
func (x *Index) enabled(n *graph.Node) bool {
	m := x.ByLabel[x.CellOf(n)]
	return m == nil || m.Enabled
}

// family is a module and those nested in it at any depth, in declaration
// order.
func (x *Index) family(label string) []string {
	all := []string{label}
	for _, inner := range x.Nested[label] {
		all = append(all, x.family(inner)...)
	}
	return all
}

// NodesOf are the nodes declared in a module; a per-module value is there once.
func (x *Index) NodesOf(label string) []*graph.Node {
	var list []*graph.Node
	for i := range x.Nodes {
		if n := &x.Nodes[i]; x.CellOf(n) == label && n.Kind != graph.KindBuiltin && !n.IsInstance() {
			list = append(list, n)
		}
	}
	return list
}

// instances are the nodes that make the values of a node: itself, or one per
// module.
func (x *Index) instances(n *graph.Node) []*graph.Node {
	if n.Visibility != graph.VisibilityPerModule {
		return []*graph.Node{n}
	}
	var list []*graph.Node
	for i := range x.Nodes {
		if x.template(&x.Nodes[i]) == n && &x.Nodes[i] != n {
			list = append(list, &x.Nodes[i])
		}
	}
	return list
}

// template is the declared node of an instance, and every other node itself.
func (x *Index) template(n *graph.Node) *graph.Node {
	if !n.IsInstance() {
		return n
	}
	for _, p := range n.Provides {
		for _, t := range x.providers[p] {
			if t.Name == n.Name && t.Module == n.Module && t.Declared == n.Declared {
				return t
			}
		}
	}
	return n
}

// NeedsOf are what a declared node takes; a per-module one takes it for some
// module.
func (x *Index) NeedsOf(n *graph.Node) []*graph.Need {
	if n.Visibility == graph.VisibilityPerModule {
		if made := x.instances(n); len(made) > 0 {
			n = made[0]
		}
	}
	list := make([]*graph.Need, len(n.Needs))
	for i := range n.Needs {
		list[i] = &n.Needs[i]
	}
	return list
}

// IsBuilt reports whether a declared node is built, for some module at least.
// Config structs are filled whether or not a module needs them.
func (x *Index) IsBuilt(n *graph.Node) bool {
	if n.Kind == graph.KindConfig {
		return x.enabled(n)
	}
	return slices.ContainsFunc(x.instances(n), func(i *graph.Node) bool { return i.Reached })
}

// SourcesOf are the declared nodes that a need is met by.
func (x *Index) SourcesOf(need *graph.Need) []*graph.Node {
	var list []*graph.Node
	for _, from := range need.From {
		if t := x.template(&x.Nodes[from]); !slices.Contains(list, t) {
			list = append(list, t)
		}
	}
	return list
}

// absent are the disabled nodes that would meet a need, or more of it.
func (x *Index) absent(n *graph.Node, need *graph.Need) []*graph.Node {
	if len(need.From) > 0 && need.Group == "" {
		return nil
	}
	var list []*graph.Node
	for _, p := range x.providers[need.Key()] {
		visible := p.Visibility != "private" || slices.Contains(x.family(x.CellOf(p)), x.CellOf(n))
		if visible && !x.enabled(p) {
			list = append(list, p)
		}
	}
	return list
}

// EnteredBy are the modules that take the handle of a term.
func (x *Index) EnteredBy(term string) []string {
	var list []string
	for i := range x.Nodes {
		if x.Nodes[i].Enters != term || term == "" {
			continue
		}
		for _, u := range x.users[i] {
			if c := x.CellOf(u.node); !slices.Contains(list, c) {
				list = append(list, c)
			}
		}
	}
	return list
}

// Shown are the modules of a scope that have something to show, in declaration
// order: those with an id, and the unnamed one where cells stand outside
// modules.
func (x *Index) Shown(term string) []*graph.Module {
	var list []*graph.Module
	for i := range x.Modules {
		m := &x.Modules[i]
		if m.Term == term && (m.ID != "" || len(x.NodesOf(m.Label())) > 0) {
			list = append(list, m)
		}
	}
	return list
}

// Depth is how deep a module is nested.
func (x *Index) Depth(m *graph.Module) int {
	depth := 0
	for m.Parent != "" && x.ByLabel[m.Parent] != nil {
		depth, m = depth+1, x.ByLabel[m.Parent]
	}
	return depth
}

// ScopeTitle says what a frame around cells of one life is.
func (x *Index) ScopeTitle(term string) string {
	title := graph.TermLabel(term)
	if by := x.EnteredBy(term); len(by) > 0 {
		title += ", entered by " + strings.Join(by, ", ")
	}
	return title
}
