// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package build

import (
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"strings"
	"time"

	"go.uber.org/dig"

	"github.com/skep-operator/skep/runtime/internal/decl"
	"github.com/skep-operator/skep/runtime/internal/plan"
)

// Error says that a node could not be built because its function, or that of a
// node it needs, failed.
type Error struct {
	Node     *plan.Node // whose function failed
	Err      error
	Panicked bool
	Stack    []byte // of a panic
}

func (e *Error) Error() string {
	kind := "failed constructor"
	if e.Panicked {
		kind = "panicking constructor"
	}
	problem := plan.Problem{Kind: kind, What: e.Node.Name + ": " + firstLine(e.Err.Error()), Rows: e.Node.Chain()}
	if e.Panicked {
		problem.Rows = append(problem.Rows, plan.Row{Label: "at", Text: panicPlace(e.Stack)})
		problem.Fix = "return an error instead, and check what the constructor takes for granted"
	}
	return problem.Error()
}

func (e *Error) Unwrap() error { return e.Err }

func firstLine(s string) string {
	first, _, more := strings.Cut(s, "\n")
	if more {
		first += " …"
	}
	return first
}

// Build runs the functions of nodes that have no value yet, each once. All that
// they need has a value in v or is among nodes. A node whose function fails, or
// that needs one that failed, is in the returned map and has no value; the
// others are built all the same. observe is told how long each function took.
func Build(nodes []*plan.Node, v *Values, observe func(*plan.Node, time.Duration)) map[*plan.Node]error {
	b := &builder{values: v, observe: observe, types: map[plan.Source]reflect.Type{}, inside: map[*plan.Node]bool{}, failed: map[*plan.Node]error{}}
	for _, n := range nodes {
		if !v.Has(n) {
			b.nodes = append(b.nodes, n)
			b.inside[n] = true
		}
	}
	b.container = dig.New(dig.DeferAcyclicVerification()) // the plan has found the cycles
	for _, n := range b.nodes {
		if !n.IsRoot() {
			b.provide(n)
		}
	}
	for _, n := range b.nodes {
		if n.IsRoot() {
			b.invoke(n, b.adapter(n).Interface())
		}
	}
	for _, n := range b.nodes {
		if !n.IsRoot() {
			b.demand(n)
		}
	}
	return b.failed
}

type builder struct {
	container *dig.Container
	values    *Values
	observe   func(*plan.Node, time.Duration)
	nodes     []*plan.Node
	inside    map[*plan.Node]bool // is built now
	types     map[plan.Source]reflect.Type
	failed    map[*plan.Node]error
}

func (b *builder) provide(n *plan.Node) {
	if err := b.container.Provide(b.adapter(n).Interface(), dig.LocationForPC(n.Fn.Value.Pointer())); err != nil {
		b.failed[n] = fmt.Errorf("providing %s: %w", n.Name, err)
	}
}

func (b *builder) invoke(n *plan.Node, fn any) {
	err := b.container.Invoke(fn)
	if err == nil || b.failed[n] != nil {
		return
	}
	var e *Error
	if errors.As(dig.RootCause(err), &e) {
		err = e
	}
	b.failed[n] = err
}

// demand builds a node that no root of this build has asked for.
func (b *builder) demand(n *plan.Node) {
	if b.values.Has(n) || b.failed[n] != nil {
		return
	}
	in := b.typeOf(plan.Source{Node: n})
	t := reflect.FuncOf([]reflect.Type{in}, nil, false)
	b.invoke(n, reflect.MakeFunc(t, func([]reflect.Value) []reflect.Value { return nil }).Interface())
}

// typeOf is the type that a result has in the container: its own if that can
// mean nothing else, or one made for it.
func (b *builder) typeOf(s plan.Source) reflect.Type {
	if t, ok := b.types[s]; ok {
		return t
	}
	result := s.Node.Results[s.Result]
	t := result.Key.Type
	ordinary := s.Node.Kind == plan.Constructor && s.Node.Visibility == decl.Public && s.Node.For == nil &&
		result.Key.Name == "" && !result.Group && t != errorType
	if !ordinary {
		// Types with different tags are different; the same node gets the same
		// type in every build, so they do not pile up.
		t = reflect.StructOf([]reflect.StructField{{
			Name: "Value", Type: t, Tag: reflect.StructTag(fmt.Sprintf(`node:"%d.%d"`, s.Node.ID, s.Result)),
		}})
	}
	b.types[s] = t
	return t
}

var errorType = reflect.TypeFor[error]()

// adapter is the function of a node as the container sees it: it takes what
// is built in this build, returns what the node makes, and an error.
func (b *builder) adapter(n *plan.Node) reflect.Value {
	var in, out []reflect.Type
	var from []plan.Source
	taken := map[plan.Source]int{}
	for _, p := range n.Params {
		for _, s := range p.Sources {
			if _, ok := taken[s]; ok || !b.inside[s.Node] {
				continue
			}
			taken[s] = len(in)
			from = append(from, s)
			in = append(in, b.typeOf(s))
		}
	}
	if !n.IsRoot() {
		for i := range n.Results {
			out = append(out, b.typeOf(plan.Source{Node: n, Result: i}))
		}
	}
	t := reflect.FuncOf(in, append(out, errorType), false)
	return reflect.MakeFunc(t, func(args []reflect.Value) []reflect.Value {
		returns := make([]reflect.Value, 0, len(out)+1)
		err := b.run(n, func(s plan.Source) reflect.Value {
			i, ok := taken[s]
			if !ok {
				return b.values.Get(s)
			}
			return unwrap(args[i], from[i])
		})
		for i, o := range out {
			returns = append(returns, b.wrap(plan.Source{Node: n, Result: i}, o))
		}
		if err != nil {
			return append(returns, reflect.ValueOf(&err).Elem())
		}
		return append(returns, reflect.Zero(errorType))
	})
}

func unwrap(v reflect.Value, s plan.Source) reflect.Value {
	if v.Type() != s.Node.Results[s.Result].Key.Type {
		return v.Field(0)
	}
	return v
}

func (b *builder) wrap(s plan.Source, t reflect.Type) reflect.Value {
	v := b.values.Get(s)
	switch {
	case !v.IsValid(): // the function failed
		return reflect.Zero(t)
	case v.Type() == t:
		return v
	}
	w := reflect.New(t).Elem()
	w.Field(0).Set(v)
	return w
}

// run calls the function of a node and keeps what it returns.
func (b *builder) run(n *plan.Node, get func(plan.Source) reflect.Value) error {
	if err := b.failed[n]; err != nil {
		return err
	}
	began := time.Now()
	results, err := call(n, arguments(n, get))
	if b.observe != nil {
		b.observe(n, time.Since(began))
	}
	if err != nil {
		b.failed[n] = err
		return err
	}
	b.values.Set(n, results...)
	return nil
}

// arguments puts parameters in their places.
func arguments(n *plan.Node, get func(plan.Source) reflect.Value) []reflect.Value {
	t := n.Fn.Value.Type()
	args := make([]reflect.Value, t.NumIn())
	for i := range args {
		args[i] = reflect.New(t.In(i)).Elem()
	}
	for i := range n.Params {
		p := &n.Params[i]
		target := args[p.Arg]
		if p.Field != nil {
			target = target.FieldByIndex(p.Field)
		}
		switch {
		case p.Group:
			list := reflect.MakeSlice(target.Type(), 0, len(p.Sources))
			for _, s := range p.Sources {
				list = reflect.Append(list, get(s))
			}
			target.Set(list)
		case len(p.Sources) > 0:
			target.Set(get(p.Sources[0]))
		}
	}
	return args
}

func call(n *plan.Node, args []reflect.Value) (results []reflect.Value, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &Error{Node: n, Err: fmt.Errorf("panic: %v", v), Panicked: true, Stack: debug.Stack()}
		}
	}()
	returned := n.Fn.Value.Call(args)
	if n.Err() {
		if last := returned[len(returned)-1]; !last.IsNil() {
			return nil, &Error{Node: n, Err: last.Interface().(error)}
		}
	}
	results = make([]reflect.Value, len(n.Results))
	for i, r := range n.Results {
		results[i] = returned[r.Return]
		if r.Field != nil {
			results[i] = results[i].FieldByIndex(r.Field)
		}
	}
	return results, nil
}

// panicPlace is the line of a stack that panicked.
func panicPlace(stack []byte) string {
	lines := strings.Split(string(stack), "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, "panic(") {
			for j := i + 2; j+1 < len(lines); j += 2 {
				if !strings.HasPrefix(lines[j], "runtime.") {
					return decl.Place(lines[j], lines[j+1])
				}
			}
		}
	}
	return "unknown place"
}
