// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package resolve

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.uber.org/dig"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/internal/decl"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

var (
	errorType = reflect.TypeFor[error]()
	boolType  = reflect.TypeFor[bool]()
	inType    = reflect.TypeFor[cell.In]()
	outType   = reflect.TypeFor[cell.Out]()
	scopeType = reflect.TypeFor[cell.ModuleInfo]()
	hookType  = reflect.TypeFor[lifecycle.Hook]()
	jobType   = reflect.TypeFor[job.Job]()
	termType  = reflect.TypeFor[lifecycle.Term]()
	groupType = reflect.TypeFor[job.Group]()
)

// Reflection allows 128 parameters and results of a function together.
const (
	maxParams  = 100
	maxResults = 25
)

// signatureError says what is wrong with a function and what would be right.
type signatureError struct{ what, fix string }

func signatureErrorf(fix, format string, args ...any) *signatureError {
	return &signatureError{fmt.Sprintf(format, args...), fix}
}

func (n *Node) readSignature() *signatureError {
	t := n.Fn.Value.Type()
	if t.IsVariadic() {
		return signatureErrorf("take a slice", "takes a variable number of arguments")
	}
	for i := range t.NumIn() {
		if bad := n.readParam(i, t.In(i)); bad != nil {
			return bad
		}
	}
	if len(n.Params) > maxParams {
		return signatureErrorf("split it", "takes %d values; the limit is %d", len(n.Params), maxParams)
	}
	for i := range t.NumOut() {
		if i == t.NumOut()-1 && t.Out(i) == errorType {
			n.hasErr = true
			continue
		}
		if bad := n.readResult(i, t.Out(i)); bad != nil {
			return bad
		}
	}
	if len(n.Results) > maxResults {
		return signatureErrorf("split it", "returns %d values; the limit is %d", len(n.Results), maxResults)
	}
	return n.checkShape(t)
}

// checkShape checks what the kind of node asks of its function.
func (n *Node) checkShape(t reflect.Type) *signatureError {
	switch n.Kind {
	case Invoke:
		if len(n.Results) > 0 {
			return signatureErrorf("return nothing or an error", "returns a value that nobody takes")
		}
	case Hook:
		if len(n.Results) != 1 || !n.Results[0].Key.Type.Implements(hookType) {
			return signatureErrorf("return a lifecycle.Hook and perhaps an error", "does not return a hook")
		}
	case Job:
		if len(n.Results) != 1 || n.Results[0].Key.Type != jobType {
			return signatureErrorf("return a job.Job, or take a context.Context last and return an error", "does not return a job")
		}
	case Decorator:
		return n.checkDecorator()
	case Constructor:
		return n.checkConstructor(t)
	}
	return nil
}

func (n *Node) checkConstructor(t reflect.Type) *signatureError {
	switch {
	case len(n.Results) == 0:
		return signatureErrorf("return at least one value, or use cell.Invoke", "provides nothing")
	case n.Visibility == decl.PerModule && (t.NumIn() == 0 || t.In(0) != scopeType):
		return signatureErrorf("take a cell.ModuleInfo first", "provides per-module values and does not take the module they are for")
	case n.Metrics && (t.NumIn() > 0 || len(n.Results) != 1 || !isStructPointer(n.Results[0].Key.Type)):
		return signatureErrorf("take a metrics.Factory or nothing, and return a pointer to a struct of collectors", "is no constructor of metrics")
	case n.Visibility != decl.Public && slices.ContainsFunc(n.Results, func(r Result) bool { return r.Group }):
		return signatureErrorf("provide it with cell.Provide", "puts a value into a group that not all can see")
	}
	return nil
}

func (n *Node) checkDecorator() *signatureError {
	if len(n.Results) != 1 || n.Results[0].Group {
		return signatureErrorf("return the value in place of the one taken, and perhaps an error", "does not return one value")
	}
	for _, param := range n.Params {
		if param.Key == n.Results[0].Key && !param.Group {
			return nil
		}
	}
	return signatureErrorf("take the value it replaces", "returns %s without taking it", n.Results[0].Key)
}

func isStructPointer(t reflect.Type) bool {
	return t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct
}

func (n *Node) readParam(arg int, t reflect.Type) *signatureError {
	if embeds(t, reflect.TypeFor[dig.In]()) {
		return signatureErrorf("embed cell.In", "takes %s, which embeds dig.In", typeName(t))
	}
	if !embeds(t, inType) {
		n.Params = append(n.Params, Param{Arg: arg, Key: Key{Type: t}})
		return nil
	}
	return eachField(t, inType, func(f reflect.StructField) *signatureError {
		param := Param{Arg: arg, Field: f.Index, Key: Key{Type: f.Type, Name: f.Tag.Get("name")}, Optional: f.Tag.Get("optional") == "true"}
		if group := f.Tag.Get("group"); group != "" {
			if f.Type.Kind() != reflect.Slice {
				return signatureErrorf("make it a slice", "takes the group %s in field %s, which is no slice", group, f.Name)
			}
			param.Group, param.Key = true, Key{f.Type.Elem(), group}
		}
		n.Params = append(n.Params, param)
		return nil
	})
}

func (n *Node) readResult(ret int, t reflect.Type) *signatureError {
	switch {
	case t == errorType:
		return signatureErrorf("return the error last", "returns an error before other results")
	case embeds(t, reflect.TypeFor[dig.Out]()):
		return signatureErrorf("embed cell.Out", "returns %s, which embeds dig.Out", typeName(t))
	case !embeds(t, outType):
		n.Results = append(n.Results, Result{Return: ret, Key: Key{Type: t}})
		return nil
	}
	return eachField(t, outType, func(f reflect.StructField) *signatureError {
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

func eachField(t, marker reflect.Type, visit func(reflect.StructField) *signatureError) *signatureError {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous && f.Type == marker {
			continue
		}
		if !f.IsExported() {
			return signatureErrorf("export it", "has a field %s in %s that cannot be set", f.Name, typeName(t))
		}
		if bad := checkTag(f); bad != nil {
			return bad
		}
		if bad := visit(f); bad != nil {
			return bad
		}
	}
	return nil
}

// checkTag finds mistyped tags, which would otherwise do nothing.
func checkTag(f reflect.StructField) *signatureError {
	rest := string(f.Tag)
	for _, key := range []string{"name", "group", "optional"} {
		if value, ok := f.Tag.Lookup(key); ok {
			rest = strings.Replace(rest, fmt.Sprintf("%s:%q", key, value), "", 1)
		}
	}
	if optional, ok := f.Tag.Lookup("optional"); ok && optional != "true" && optional != "false" {
		return signatureErrorf(`write optional:"true"`, "has a field %s that is optional:%q", f.Name, optional)
	}
	if strings.TrimSpace(rest) != "" {
		return signatureErrorf("use name, group and optional", "has a field %s with an unknown tag %s", f.Name, strings.TrimSpace(rest))
	}
	return nil
}
