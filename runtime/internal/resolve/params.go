// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package resolve

import (
	"fmt"
	"slices"

	"github.com/skep-operator/skep/runtime/internal/decl"
)

// ResolveParams finds the provider of every parameter of every node.
func (g *Graph) ResolveParams() {
	r := &resolver{plan: g, instances: map[instance]*Node{}}
	r.checkDuplicates()
	for i := 0; i < len(g.Nodes); i++ { // grows: per-module values are added
		r.resolve(g.Nodes[i])
	}
	r.checkDecorators()
	r.checkUnusedPrivate()
	r.checkOrders()
}

type resolver struct {
	plan      *Graph
	instances map[instance]*Node
}

// instance tells values of per-module providers apart.
type instance struct {
	provider *Node   // nil for a builtin
	key      Key     // of a builtin
	module   *Module // nil for a builtin of the process
	term     *Term
}

func (r *resolver) resolve(n *Node) {
	if r.isTemplate(n) {
		r.markPrivate(n)
		return
	}
	for i := range n.Params {
		param := &n.Params[i]
		if n.For != nil && param.Key.Type == scopeType {
			param.Sources = []Source{r.builtin(&builtin{key: param.Key, perModule: true}, n.For, n.Term)}
			continue
		}
		var f *paramError
		if param.Group {
			f = r.resolveGroup(n, param)
		} else {
			f = r.resolveOne(n, param)
		}
		if f != nil {
			n.paramErrors = append(n.paramErrors, f)
		}
		for _, s := range param.Sources {
			s.Node.requested = true
		}
	}
}

// isTemplate reports whether a node is never built itself, but once for every
// module that asks: the provider of a per-module value, or what decorates one.
func (r *resolver) isTemplate(n *Node) bool {
	switch {
	case n.For != nil:
		return false
	case n.Kind == Decorator:
		return r.decoratesPerModule(n)
	}
	return n.Visibility == decl.PerModule
}

func (r *resolver) decoratesPerModule(d *Node) bool {
	k := d.Results[0].Key
	for m := d.Module; m != nil; m = m.Parent {
		if len(enabledNodes(m.private[k])) > 0 {
			return false
		}
	}
	if b := r.plan.builtins[k]; b != nil {
		return b.perModule
	}
	providers := visible(enabledNodes(r.plan.public[k]), d.Term)
	return len(providers) > 0 && providers[0].Visibility == decl.PerModule
}

// markPrivate notes that a template asks for private values, whether or not
// any module asks for what it makes.
func (r *resolver) markPrivate(template *Node) {
	for _, param := range template.Params {
		for m := template.Module; m != nil; m = m.Parent {
			for _, private := range m.private[param.Key] {
				private.requested = true
			}
		}
	}
}

func (r *resolver) resolveGroup(n *Node, param *Param) *paramError {
	for _, member := range visible(enabledNodes(r.plan.groups[param.Key]), n.Term) {
		if n.Term == nil && member.Term != nil {
			return r.termValueError(n, member)
		}
		for i, result := range member.Results {
			if result.Group && result.Key == param.Key {
				param.Sources = append(param.Sources, Source{member, i})
			}
		}
	}
	return nil
}

func (r *resolver) resolveOne(n *Node, param *Param) *paramError {
	found, f := r.find(n, param)
	switch {
	case f != nil && param.Optional && slices.Contains(absent, f.kind):
		return nil
	case f != nil:
		return f
	case n.Term == nil && found.Node.Term != nil:
		return r.termValueError(n, found.Node)
	}
	param.Sources = []Source{found}
	return nil
}

// find looks a value up for a node: decorators and private values of its
// module and those around it, then public values, per-module values and what
// the hive offers.
func (r *resolver) find(n *Node, param *Param) (Source, *paramError) {
	k := param.Key
	for m := n.Module; m != nil; m = m.Parent {
		if d := decoratorFor(n, m, k); d != nil {
			if r.isTemplate(d) {
				d = r.instance(d, n)
			}
			return Source{d, 0}, nil
		}
		if private := enabledNodes(m.private[k]); len(private) > 0 {
			return source(private[0], k), nil
		}
	}
	if b := r.plan.builtins[k]; b != nil {
		if b.term != nil {
			if n.Term != nil {
				b.term.handleRequestedInTerm = true
				return Source{}, &paramError{kind: "misplaced term", what: fmt.Sprintf("the handle of term %s is asked for inside a term", b.term.Name),
					fix: "ask for it in a process cell"}
			}
		}
		return r.builtin(b, n.Owner(), n.Term), nil
	}
	providers := visible(enabledNodes(r.plan.public[k]), n.Term)
	if len(providers) > 0 {
		provider := providers[0]
		if provider.Visibility == decl.PerModule {
			provider = r.instance(provider, n)
		}
		return source(provider, k), nil
	}
	return Source{}, r.missingProviderError(n, param)
}

// decoratorFor is the last decorator of a value in a module, or, for one of
// them, the one declared before it.
func decoratorFor(n *Node, m *Module, k Key) *Node {
	var last *Node
	for _, d := range enabledNodes(m.decorators[k]) {
		if d == n || d == n.template {
			break
		}
		last = d
	}
	return last
}

// visible drops values of other terms. A process node sees values of terms so
// that it can be told why it must not.
func visible(nodes []*Node, t *Term) []*Node {
	foreign := func(n *Node) bool { return n.Term != nil && n.Term != t }
	if t == nil || !slices.ContainsFunc(nodes, foreign) {
		return nodes
	}
	return slices.DeleteFunc(slices.Clone(nodes), foreign)
}

func enabledNodes(nodes []*Node) []*Node {
	off := func(n *Node) bool { return !n.Module.Enabled && n.Kind != Config } // config structs are always there
	if !slices.ContainsFunc(nodes, off) {
		return nodes
	}
	return slices.DeleteFunc(slices.Clone(nodes), off)
}

func source(n *Node, k Key) Source {
	return Source{n, slices.IndexFunc(n.Results, func(r Result) bool { return r.Key == k && !r.Group })}
}

// instance is the node that makes a per-module value for the module of n. It
// lives where n does, unless the template belongs to a term.
func (r *resolver) instance(template, n *Node) *Node {
	at := instance{provider: template, module: n.Owner(), term: n.Term}
	if template.Term != nil {
		at.term = template.Term
	}
	if known := r.instances[at]; known != nil {
		return known
	}
	made := *template
	made.template, made.For, made.Term, made.Params = template, at.module, at.term, slices.Clone(template.Params)
	r.instances[at] = r.plan.addNode(&made)
	return &made
}

// builtin is the node of a value that the hive offers.
func (r *resolver) builtin(b *builtin, m *Module, t *Term) Source {
	at := instance{key: b.key}
	if b.perModule {
		at.module, at.term = m, t
	}
	n := r.instances[at]
	if n == nil {
		n = r.plan.addNode(&Node{
			Kind: Builtin, Name: b.key.String(), Module: r.plan.root, For: at.module, Term: at.term,
			Results: []Result{{Key: b.key}},
		})
		r.instances[at] = n
	}
	return Source{n, 0}
}
