// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package resolve

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/skep-operator/skep/runtime/internal/decl"
	"github.com/skep-operator/skep/runtime/metrics"
)

// readFunc reads a declaration that is a function: a provider, a decorator or
// a root.
func (g *Graph) readFunc(c decl.Node, m *Module) {
	n := &Node{Module: m, Term: m.Term}
	var what string
	switch c := c.(type) {
	case *decl.Provide:
		n.Kind, n.Fn, n.Visibility, n.Metrics, what = Constructor, c.Fn, c.Visibility, c.Metrics, "Provide"
		if c.Lasting {
			n.Term = nil
		}
		if c.Metrics {
			n.Fn = g.withFactory(n.Fn, m)
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
	if !g.checkFunc(n.Fn, what, m) {
		return
	}
	n.Name, n.Where = n.Fn.Name(), n.Fn.Where
	if n.Root != nil {
		n.Name = n.Root.Name
		g.checkName(n)
	}
	if bad := n.readSignature(); bad != nil {
		g.problem("unusable function", n.Describe()+" "+bad.what).add("declared", n.Where.String()).add("in", m.Label()).fix("%s", bad.fix)
		return
	}
	g.addNode(n)
	g.register(n)
}

// withFactory gives a constructor of metrics that takes a factory the one of its module, so that it takes nothing.
func (g *Graph) withFactory(fn decl.Func, m *Module) decl.Func {
	v := fn.Value
	if !v.IsValid() || v.Type().IsVariadic() || v.Type().NumIn() != 1 || v.Type().In(0) != reflect.TypeFor[metrics.Factory]() {
		return fn
	}
	t := v.Type()
	out := make([]reflect.Type, t.NumOut())
	for i := range out {
		out[i] = t.Out(i)
	}
	factory := []reflect.Value{reflect.ValueOf(metrics.Factory{Namespace: g.namespace, Subsystem: subsystem.Replace(m.ID)})}
	return fn.With(reflect.MakeFunc(reflect.FuncOf(nil, out, false), func([]reflect.Value) []reflect.Value { return v.Call(factory) }))
}

// subsystem makes a part of a metric's name from the id of a module.
var subsystem = strings.NewReplacer(".", "_", "-", "_")

// checkName checks the name of a hook or job, which is part of a health path.
func (g *Graph) checkName(n *Node) {
	switch {
	case n.Name == "":
		g.problem("unusable name", fmt.Sprintf("a %s without a name", n.Kind)).
			add("declared", n.Where.String()).add("in", n.Module.Label()).fix("name it for what it does")
	case !validID.MatchString(n.Name):
		g.problem("unusable name", fmt.Sprintf("%q is no name of a %s", n.Name, n.Kind)).
			add("declared", n.Where.String()).add("in", n.Module.Label()).fix("use lower-case letters, digits and dashes: collect-garbage")
	}
	for _, other := range g.Nodes {
		if other.Module == n.Module && other.Kind == n.Kind && other.Name == n.Name {
			g.problem("duplicate name", n.Describe()+" is declared twice").
				add("first", other.Where.String()).add("again", n.Where.String()).fix("give one of them another name")
			return
		}
	}
}

// checkRule checks a function of config structs.
func (g *Graph) checkRule(fn decl.Func, what string, result reflect.Type, m *Module) bool {
	if !g.checkFunc(fn, what, m) {
		return false
	}
	t := fn.Value.Type()
	if !t.IsVariadic() && t.NumOut() == 1 && t.Out(0) == result {
		return true
	}
	g.problem("unusable function", fmt.Sprintf("%s is given a %s", what, typeName(t))).
		add("declared", fn.Where.String()).add("in", m.Label()).
		fix("pass a function of config structs that returns one %s", result)
	return false
}

func (g *Graph) checkFunc(fn decl.Func, what string, m *Module) bool {
	if fn.Value.IsValid() {
		return true
	}
	g.problem("unusable function", what+" is given something that is no function").
		add("declared", fn.Where.String()).add("in", m.Label()).fix("pass the function itself, without calling it")
	return false
}

// register indexes the results of a node.
func (g *Graph) register(n *Node) {
	for _, r := range n.Results {
		switch {
		case n.Kind == Decorator:
			n.Module.decorators[r.Key] = append(n.Module.decorators[r.Key], n)
		case n.IsRoot():
		case r.Group:
			if members := g.groups[r.Key]; len(members) == 0 || members[len(members)-1] != n { // a node may add several values
				g.groups[r.Key] = append(members, n)
			}
		case n.Visibility == decl.Private:
			n.Module.private[r.Key] = append(n.Module.private[r.Key], n)
		default:
			g.public[r.Key] = append(g.public[r.Key], n)
		}
	}
}
