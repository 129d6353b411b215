// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package plan

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/internal/decl"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

var (
	errorType = reflect.TypeFor[error]()
	inType    = reflect.TypeFor[cell.In]()
	outType   = reflect.TypeFor[cell.Out]()
	scopeType = reflect.TypeFor[cell.Scope]()
	hookType  = reflect.TypeFor[lifecycle.Hook]()
	jobType   = reflect.TypeFor[job.Job]()
	termType  = reflect.TypeFor[lifecycle.Term]()
	groupType = reflect.TypeFor[job.Group]()
)

// maxParams keeps room below the 128 that reflection allows.
const maxParams = 100

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
	}
	if err := n.readSignature(); err != nil {
		p.problem("unusable function", n.describe()+": "+err.Error()).add("declared", n.Where.String()).add("in", m.Label())
		return
	}
	p.addNode(n)
	p.offer(n)
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
			p.groups[r.Key] = append(p.groups[r.Key], n)
		case n.Visibility == decl.Private:
			n.Module.private[r.Key] = append(n.Module.private[r.Key], n)
		default:
			p.public[r.Key] = append(p.public[r.Key], n)
		}
	}
}

func (n *Node) readSignature() error {
	t := n.Fn.Value.Type()
	if t.IsVariadic() {
		return fmt.Errorf("takes a variable number of arguments; take a slice")
	}
	for i := range t.NumIn() {
		if err := n.readParam(i, t.In(i)); err != nil {
			return err
		}
	}
	if len(n.Params) > maxParams {
		return fmt.Errorf("takes %d values; the limit is %d", len(n.Params), maxParams)
	}
	for i := range t.NumOut() {
		if i == t.NumOut()-1 && t.Out(i) == errorType {
			n.hasErr = true
			continue
		}
		if err := n.readResult(i, t.Out(i)); err != nil {
			return err
		}
	}
	return n.checkShape(t)
}

// checkShape checks what the kind of node asks of its function.
func (n *Node) checkShape(t reflect.Type) error {
	switch {
	case n.Kind == Invoke && len(n.Results) > 0:
		return fmt.Errorf("an invoked function returns nothing or an error")
	case n.Kind == Constructor && len(n.Results) == 0:
		return fmt.Errorf("a constructor returns at least one value")
	case n.Kind == Constructor && n.Visibility == decl.PerModule && (t.NumIn() == 0 || t.In(0) != scopeType):
		return fmt.Errorf("the constructor of a per-module value takes a cell.Scope first")
	case n.Kind == Hook && (len(n.Results) != 1 || !n.Results[0].Key.Type.Implements(hookType)):
		return fmt.Errorf("the constructor of a hook returns a lifecycle.Hook and perhaps an error")
	case n.Kind == Job && (len(n.Results) != 1 || n.Results[0].Key.Type != jobType):
		return fmt.Errorf("the constructor of a job returns a job.Job and perhaps an error")
	case n.Metrics && (t.NumIn() > 0 || len(n.Results) != 1 || !isStructPointer(n.Results[0].Key.Type)):
		return fmt.Errorf("the constructor of metrics takes nothing and returns a pointer to a struct of collectors")
	case n.Kind == Decorator:
		return n.checkDecorator()
	}
	for _, r := range n.Results {
		if r.Group && n.Visibility != decl.Public {
			return fmt.Errorf("only public values can join a group")
		}
	}
	return nil
}

func (n *Node) checkDecorator() error {
	if len(n.Results) != 1 || n.Results[0].Group {
		return fmt.Errorf("a decorator returns one value and perhaps an error")
	}
	for _, param := range n.Params {
		if param.Key == n.Results[0].Key && !param.Group {
			return nil
		}
	}
	return fmt.Errorf("a decorator takes the value it replaces (%s)", n.Results[0].Key)
}

func isStructPointer(t reflect.Type) bool {
	return t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct
}

func (n *Node) readParam(arg int, t reflect.Type) error {
	if !embeds(t, inType) {
		n.Params = append(n.Params, Param{Arg: arg, Key: Key{Type: t}})
		return nil
	}
	return eachField(t, inType, func(f reflect.StructField) error {
		param := Param{Arg: arg, Field: f.Index, Key: Key{Type: f.Type, Name: f.Tag.Get("name")}, Optional: f.Tag.Get("optional") == "true"}
		if group := f.Tag.Get("group"); group != "" {
			if f.Type.Kind() != reflect.Slice {
				return fmt.Errorf("field %s of group %s must be a slice", f.Name, group)
			}
			param.Group, param.Key = true, Key{f.Type.Elem(), group}
		}
		n.Params = append(n.Params, param)
		return nil
	})
}

func (n *Node) readResult(ret int, t reflect.Type) error {
	if t == errorType {
		return fmt.Errorf("an error must be the last result")
	}
	if !embeds(t, outType) {
		n.Results = append(n.Results, Result{Return: ret, Key: Key{Type: t}})
		return nil
	}
	return eachField(t, outType, func(f reflect.StructField) error {
		r := Result{Return: ret, Field: f.Index, Key: Key{Type: f.Type, Name: f.Tag.Get("name")}}
		if group := f.Tag.Get("group"); group != "" {
			r.Group, r.Key.Name = true, group
		}
		n.Results = append(n.Results, r)
		return nil
	})
}

func embeds(t, marker reflect.Type) bool {
	if t.Kind() != reflect.Struct {
		return false
	}
	for i := range t.NumField() {
		if f := t.Field(i); f.Anonymous && f.Type == marker {
			return true
		}
	}
	return false
}

var knownTags = []string{"name", "group", "optional"}

func eachField(t, marker reflect.Type, visit func(reflect.StructField) error) error {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous && f.Type == marker {
			continue
		}
		if !f.IsExported() {
			return fmt.Errorf("field %s of %s is not exported", f.Name, typeName(t))
		}
		if len(f.Tag) > 0 && !hasKnownTag(f.Tag) {
			return fmt.Errorf("tag %s of field %s is none of %s", f.Tag, f.Name, strings.Join(knownTags, ", "))
		}
		if err := visit(f); err != nil {
			return err
		}
	}
	return nil
}

func hasKnownTag(tag reflect.StructTag) bool {
	for _, k := range knownTags {
		if _, ok := tag.Lookup(k); ok {
			return true
		}
	}
	return false
}
