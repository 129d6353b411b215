// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package plan

import (
	"fmt"
	"reflect"

	"github.com/skep-operator/skep/runtime/internal/decl"
)

// readFunc reads a declaration that is a function: a provider, a decorator or
// a root.
func (p *Plan) readFunc(c decl.Node, m *Module) {
	n := &Node{Module: m, Term: m.Term}
	var what string
	switch c := c.(type) {
	case *decl.Provide:
		n.Kind, n.Fn, n.Visibility, n.Metrics, what = Constructor, c.Fn, c.Visibility, c.Metrics, "Provide"
		if c.Lasting {
			n.Term = nil
		}
	case *decl.Decorate:
		n.Kind, n.Fn, what = Decorator, c.Fn, "Decorate"
	case *decl.Invoke:
		n.Kind, n.Fn, what = Invoke, c.Fn, "Invoke"
	case *decl.Root:
		n.Kind, n.Fn, n.Root, what = Hook, c.Fn, c, "Hook"
		if c.Job {
			n.Kind, what = Job, "Job"
		}
	}
	if !p.checkFunc(n.Fn, what, m) {
		return
	}
	n.Name, n.Where = n.Fn.Name(), n.Fn.Where
	if n.Root != nil {
		n.Name = n.Root.Name
		p.checkName(n)
	}
	if bad := n.readSignature(); bad != nil {
		p.problem("unusable function", n.Describe()+" "+bad.what).add("declared", n.Where.String()).add("in", m.Label()).fix("%s", bad.fix)
		return
	}
	p.addNode(n)
	p.offer(n)
}

// checkName checks the name of a hook or job, which is part of a health path.
func (p *Plan) checkName(n *Node) {
	if n.Name == "" {
		p.problem("unusable name", fmt.Sprintf("a %s without a name", n.Kind)).
			add("declared", n.Where.String()).add("in", n.Module.Label()).fix("name it for what it does")
	}
	for _, other := range p.Nodes {
		if other.Module == n.Module && other.Kind == n.Kind && other.Name == n.Name {
			p.problem("duplicate name", n.Describe()+" is declared twice").
				add("first", other.Where.String()).add("again", n.Where.String()).fix("give one of them another name")
			return
		}
	}
}

// checkRule checks a function of config structs.
func (p *Plan) checkRule(fn decl.Func, what string, result reflect.Type, m *Module) bool {
	if !p.checkFunc(fn, what, m) {
		return false
	}
	t := fn.Value.Type()
	if !t.IsVariadic() && t.NumOut() == 1 && t.Out(0) == result {
		return true
	}
	p.problem("unusable function", fmt.Sprintf("%s is given a %s", what, typeName(t))).
		add("declared", fn.Where.String()).add("in", m.Label()).
		fix("pass a function of config structs that returns one %s", result)
	return false
}

func (p *Plan) checkFunc(fn decl.Func, what string, m *Module) bool {
	if fn.Value.IsValid() {
		return true
	}
	p.problem("unusable function", what+" is given something that is no function").
		add("declared", fn.Where.String()).add("in", m.Label()).fix("pass the function itself, without calling it")
	return false
}

// offer makes the results of a node known to those who look for them.
func (p *Plan) offer(n *Node) {
	for _, r := range n.Results {
		switch {
		case n.Kind == Decorator:
			n.Module.decorators[r.Key] = append(n.Module.decorators[r.Key], n)
		case n.IsRoot():
		case r.Group:
			if g := p.groups[r.Key]; len(g) == 0 || g[len(g)-1] != n { // it may have several members
				p.groups[r.Key] = append(g, n)
			}
		case n.Visibility == decl.Private:
			n.Module.private[r.Key] = append(n.Module.private[r.Key], n)
		default:
			p.public[r.Key] = append(p.public[r.Key], n)
		}
	}
}
