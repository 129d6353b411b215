// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package graph

import (
	"slices"
)

// Kinds of nodes.
const (
	KindConfig      = "config"
	KindBuiltin     = "builtin"
	KindConstructor = "constructor"
	KindDecorator   = "decorator"
	KindHook        = "hook"
	KindJob         = "job"
	KindInvoke      = "invoke"
)

// perModule is the visibility of values that every module has its own of.
const perModule = "per module"

// offered is the label of what every cell can ask for without a provider.
const offered = "the hive"

// Process is the label of what lives as long as the process.
const Process = "process"

// TermLabel is how a scope is called: the process, or a term by its name.
func TermLabel(term string) string {
	if term == "" {
		return Process
	}
	return "term " + term
}

// Label is how a module is called: by its id, or, outside modules, by the list
// or the term that its cells stand in.
func (m *Module) Label() string {
	switch {
	case m.ID != "":
		return m.ID
	case m.Term != "":
		return TermLabel(m.Term)
	}
	return "the list of cells"
}

// key is what a need asks for, in the spelling of what nodes provide.
func (n Need) key() string {
	if n.Group == "" {
		return n.Type
	}
	return n.Type + " in group " + n.Group
}

// dispensable says that a node is built with an empty value where nobody
// provides one.
func (n Need) dispensable() bool { return n.Optional || n.Group != "" }

// root reports whether the node runs by itself rather than because it is
// needed.
func (n *Node) root() bool { return n.Kind == KindHook || n.Kind == KindJob || n.Kind == KindInvoke }

// instance reports whether the node makes a per-module value for one module.
func (n *Node) instance() bool { return n.Visibility == perModule && n.For != "" }

// index is a graph with what is looked up often.
type index struct {
	*Graph
	modules   map[string]*Module // by label
	position  map[string]int     // of modules, by label
	users     [][]use            // by node
	providers map[string][]*Node // by what they provide; not builtins, not instances
	nested    map[string][]string
	labels    []string // of the modules of nodes
}

// use is a node that takes a value of another.
type use struct {
	node *Node
	need *Need
}

func newIndex(g *Graph) *index {
	x := &index{
		Graph: g, modules: map[string]*Module{}, position: map[string]int{},
		users: make([][]use, len(g.Nodes)), providers: map[string][]*Node{},
		nested: map[string][]string{}, labels: make([]string, len(g.Nodes)),
	}
	for i := range g.Modules {
		m := &g.Modules[i]
		x.modules[m.Label()], x.position[m.Label()] = m, i
		if m.Parent != "" {
			x.nested[m.Parent] = append(x.nested[m.Parent], m.ID)
		}
	}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		x.labels[i] = (&Module{ID: n.Module, Term: n.Term}).Label()
		if n.Kind == KindBuiltin {
			x.labels[i] = offered
		}
		for j := range n.Needs {
			for _, from := range n.Needs[j].From {
				x.users[from] = append(x.users[from], use{n, &n.Needs[j]})
			}
		}
		if n.Kind != KindBuiltin && n.Kind != KindDecorator && !n.instance() {
			for _, p := range n.Provides {
				x.providers[p] = append(x.providers[p], n)
			}
		}
	}
	return x
}

// cell is the label of the module that a node is declared in.
func (x *index) cell(n *Node) string { return x.labels[n.ID] }

// enabled reports whether the module of a node is on.
func (x *index) enabled(n *Node) bool {
	m := x.modules[x.cell(n)]
	return m == nil || m.Enabled
}

// family is a module and those nested in it at any depth, in declaration
// order.
func (x *index) family(label string) []string {
	all := []string{label}
	for _, inner := range x.nested[label] {
		all = append(all, x.family(inner)...)
	}
	return all
}

// nodesOf are the nodes declared in a module; a per-module value is there once.
func (x *index) nodesOf(label string) []*Node {
	var list []*Node
	for i := range x.Nodes {
		if n := &x.Nodes[i]; x.cell(n) == label && n.Kind != KindBuiltin && !n.instance() {
			list = append(list, n)
		}
	}
	return list
}

// instances are the nodes that make the values of a node: itself, or one per
// module.
func (x *index) instances(n *Node) []*Node {
	if n.Visibility != perModule {
		return []*Node{n}
	}
	var list []*Node
	for i := range x.Nodes {
		if x.template(&x.Nodes[i]) == n && &x.Nodes[i] != n {
			list = append(list, &x.Nodes[i])
		}
	}
	return list
}

// template is the declared node of an instance, and every other node itself.
func (x *index) template(n *Node) *Node {
	if !n.instance() {
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

// needs are what a declared node takes; a per-module one takes it for some
// module.
func (x *index) needs(n *Node) []*Need {
	if n.Visibility == perModule {
		if made := x.instances(n); len(made) > 0 {
			n = made[0]
		}
	}
	list := make([]*Need, len(n.Needs))
	for i := range n.Needs {
		list[i] = &n.Needs[i]
	}
	return list
}

// built reports whether a declared node is built, for some module at least.
// Config structs are filled whether or not somebody needs them.
func (x *index) built(n *Node) bool {
	if n.Kind == KindConfig {
		return x.enabled(n)
	}
	return slices.ContainsFunc(x.instances(n), func(i *Node) bool { return i.Reached })
}

// sources are the declared nodes that a need is met by.
func (x *index) sources(need *Need) []*Node {
	var list []*Node
	for _, from := range need.From {
		if t := x.template(&x.Nodes[from]); !slices.Contains(list, t) {
			list = append(list, t)
		}
	}
	return list
}

// absent are the disabled nodes that would meet a need, or more of it.
func (x *index) absent(n *Node, need *Need) []*Node {
	if len(need.From) > 0 && need.Group == "" {
		return nil
	}
	var list []*Node
	for _, p := range x.providers[need.key()] {
		visible := p.Visibility != "private" || slices.Contains(x.family(x.cell(p)), x.cell(n))
		if visible && !x.enabled(p) {
			list = append(list, p)
		}
	}
	return list
}

// entersTerm are the modules that take the handle of a term.
func (x *index) entersTerm(term string) []string {
	var list []string
	for i := range x.Nodes {
		if x.Nodes[i].Enters != term || term == "" {
			continue
		}
		for _, u := range x.users[i] {
			if c := x.cell(u.node); !slices.Contains(list, c) {
				list = append(list, c)
			}
		}
	}
	return list
}

// scopes are the process and then the terms, in declaration order.
func (g *Graph) scopes() []string {
	scopes := []string{""}
	for _, m := range g.Modules {
		if !slices.Contains(scopes, m.Term) {
			scopes = append(scopes, m.Term)
		}
	}
	return scopes
}

// scope is the place of a term in scopes.
func (g *Graph) scope(term string) int { return slices.Index(g.scopes(), term) }

// shown are the modules of a scope that have something to show, in declaration
// order: those with an id, and the unnamed one where cells stand outside
// modules.
func (x *index) shown(term string) []*Module {
	var list []*Module
	for i := range x.Modules {
		m := &x.Modules[i]
		if m.Term == term && (m.ID != "" || len(x.nodesOf(m.Label())) > 0) {
			list = append(list, m)
		}
	}
	return list
}

// depth is how deep a module is nested.
func (x *index) depth(m *Module) int {
	depth := 0
	for m.Parent != "" && x.modules[m.Parent] != nil {
		depth, m = depth+1, x.modules[m.Parent]
	}
	return depth
}
