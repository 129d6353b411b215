// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package build

import (
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"go.uber.org/dig"

	"github.com/skep-operator/skep/runtime/internal/decl"
	"github.com/skep-operator/skep/runtime/internal/resolve"
	"github.com/skep-operator/skep/runtime/internal/stacks"
)

// Error says that a node could not be built because its function, or that of a
// node it needs, failed.
type Error struct {
	Node     *resolve.Node // whose function failed
	Err      error
	Panicked bool
	Stack    []byte // of a panic
}

func (e *Error) Error() string {
	problem := resolve.Problem{
		Kind: "failed constructor", What: e.Node.Describe() + ": " + firstLine(e.Err.Error()), Rows: e.Node.RequestChain(),
		Fix: "mend what the error names",
	}
	if flags := e.Node.Module.Flags(); len(flags) > 0 {
		problem.Fix += ", or switch " + e.Node.Module.Label() + " off (--" + strings.Join(flags, ", --") + ")"
	}
	if e.Panicked {
		problem.Kind = "panicking constructor"
		problem.Rows = append(problem.Rows, resolve.Row{Label: "at", Text: stacks.Panicked(e.Stack)})
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
// others are built all the same. observe, if not nil, is called with the duration
// and the error of each function.
func Build(nodes []*resolve.Node, v *Values, observe func(*resolve.Node, time.Duration, error)) map[*resolve.Node]error {
	b := &builder{values: v, observe: observe, types: map[resolve.Source]reflect.Type{}, inside: map[*resolve.Node]bool{}, failed: map[*resolve.Node]error{}}
	for _, n := range nodes {
		if !v.Has(n) {
			b.nodes = append(b.nodes, n)
			b.inside[n] = true
		}
	}
	b.container = dig.New(dig.DeferAcyclicVerification()) // the graph has no cycles
	for _, n := range b.nodes {
		if !n.IsRoot() {
			b.provide(n)
		}
	}
	b.demandAll()
	for _, n := range b.nodes {
		if n.IsRoot() {
			b.runRoot(n)
		}
	}
	return b.failed
}

type builder struct {
	container *dig.Container
	values    *Values
	observe   func(*resolve.Node, time.Duration, error)
	nodes     []*resolve.Node
	inside    map[*resolve.Node]bool // is built now
	types     map[resolve.Source]reflect.Type
	failed    map[*resolve.Node]error
}

func (b *builder) provide(n *resolve.Node) {
	if err := b.container.Provide(b.adapter(n).Interface(), dig.LocationForPC(n.Fn.Value.Pointer())); err != nil {
		b.failed[n] = fmt.Errorf("providing %s: %w", n.Name, err)
	}
}

// demandAll makes the container build every node. It requests the nodes that no
// other takes from, many at a time; after a failure one by one, so that each
// failure is reported and the others are built.
func (b *builder) demandAll() {
	taken := map[*resolve.Node]bool{}
	for _, n := range b.nodes {
		if !n.IsRoot() {
			for _, d := range n.Deps() {
				taken[d] = true
			}
		}
	}
	var last []*resolve.Node
	for _, n := range b.nodes {
		if !n.IsRoot() && !taken[n] {
			last = append(last, n)
		}
	}
	for batch := range slices.Chunk(last, maxParams) {
		if b.demand(batch...) != nil {
			b.demandOneByOne()
			return
		}
	}
}

// maxParams keeps room below the 128 that reflection allows.
const maxParams = 100

func (b *builder) demandOneByOne() {
	for _, n := range b.nodes {
		if n.IsRoot() || b.values.Has(n) || b.failed[n] != nil {
			continue
		}
		if err := b.demand(n); err != nil && b.failed[n] == nil {
			b.failed[n] = err
		}
	}
}

// demand makes the container build nodes. The error is that of the function that
// failed.
func (b *builder) demand(nodes ...*resolve.Node) error {
	in := make([]reflect.Type, len(nodes))
	for i, n := range nodes {
		in[i] = b.typeOf(resolve.Source{Node: n})
	}
	nothing := reflect.MakeFunc(reflect.FuncOf(in, nil, false), func([]reflect.Value) []reflect.Value { return nil })
	err := b.container.Invoke(nothing.Interface())
	if e := new(Error); errors.As(dig.RootCause(err), &e) {
		return e
	}
	return err
}

// runRoot runs a node that is not in the container: no other takes from it.
func (b *builder) runRoot(n *resolve.Node) {
	for _, d := range n.Deps() {
		if err := b.failed[d]; err != nil {
			b.failed[n] = err
			return
		}
	}
	_ = b.run(n, b.values.Get) // kept in failed
}

// typeOf is the type that a result has in the container: its own if that is
// unambiguous, or a type made for it.
func (b *builder) typeOf(s resolve.Source) reflect.Type {
	if t, ok := b.types[s]; ok {
		return t
	}
	result := s.Node.Results[s.Result]
	t := result.Key.Type
	ordinary := s.Node.Kind == resolve.Constructor && s.Node.Visibility == decl.Public && s.Node.For == nil &&
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

// adapter is the function of a node for the container: it takes the values of
// this build, and returns the results of the node and an error.
func (b *builder) adapter(n *resolve.Node) reflect.Value {
	taken := map[resolve.Source]int{}
	var from []resolve.Source
	for _, p := range n.Params {
		for _, s := range p.Sources {
			if _, ok := taken[s]; !ok && b.inside[s.Node] {
				taken[s] = len(from)
				from = append(from, s)
			}
		}
	}
	in := make([]reflect.Type, min(len(from), maxParams))
	for i := range in {
		in[i] = b.typeOf(from[i])
	}
	if len(from) > maxParams { // a large group: the others come first, in bundles
		in[maxParams-1] = b.bundle(n, from[maxParams-1:])
	}
	out := make([]reflect.Type, len(n.Results), len(n.Results)+1)
	for i := range out {
		out[i] = b.typeOf(resolve.Source{Node: n, Result: i})
	}
	t := reflect.FuncOf(in, append(out, errorType), false)
	return reflect.MakeFunc(t, func(args []reflect.Value) []reflect.Value {
		returns := make([]reflect.Value, 0, len(out)+1)
		err := b.run(n, func(s resolve.Source) reflect.Value {
			i, ok := taken[s]
			if !ok || i >= maxParams-1 && len(from) > maxParams {
				return b.values.Get(s)
			}
			return unwrap(args[i], from[i])
		})
		for i, o := range out {
			returns = append(returns, b.wrap(resolve.Source{Node: n, Result: i}, o))
		}
		if err != nil {
			return append(returns, reflect.ValueOf(&err).Elem())
		}
		return append(returns, reflect.Zero(errorType))
	})
}

// bundle provides a type of its own that is built after all of the sources, for
// functions that take more of them than reflection allows.
func (b *builder) bundle(n *resolve.Node, from []resolve.Source) reflect.Type {
	var previous []reflect.Type
	i := 0
	for chunk := range slices.Chunk(from, maxParams-1) {
		in := previous
		for _, s := range chunk {
			in = append(in, b.typeOf(s))
		}
		t := reflect.StructOf([]reflect.StructField{{
			Name: "Bundle", Type: reflect.TypeFor[struct{}](), Tag: reflect.StructTag(fmt.Sprintf(`node:"%d" part:"%d"`, n.ID, i)),
		}})
		done := []reflect.Value{reflect.Zero(t)}
		fn := reflect.MakeFunc(reflect.FuncOf(in, []reflect.Type{t}, false), func([]reflect.Value) []reflect.Value { return done })
		if err := b.container.Provide(fn.Interface(), dig.LocationForPC(n.Fn.Value.Pointer())); err != nil {
			b.failed[n] = fmt.Errorf("providing %s: %w", n.Name, err)
		}
		previous = []reflect.Type{t}
		i++
	}
	return previous[0]
}

func unwrap(v reflect.Value, s resolve.Source) reflect.Value {
	if v.Type() != s.Node.Results[s.Result].Key.Type {
		return v.Field(0)
	}
	return v
}

func (b *builder) wrap(s resolve.Source, t reflect.Type) reflect.Value {
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
func (b *builder) run(n *resolve.Node, get func(resolve.Source) reflect.Value) error {
	if err := b.failed[n]; err != nil {
		return err
	}
	began := time.Now()
	results, err := call(n, arguments(n, get))
	if b.observe != nil {
		b.observe(n, time.Since(began), err)
	}
	if err != nil {
		b.failed[n] = err
		return err
	}
	b.values.Set(n, results...)
	return nil
}

// arguments puts parameters in their places.
func arguments(n *resolve.Node, get func(resolve.Source) reflect.Value) []reflect.Value {
	t := n.Fn.Value.Type()
	args := make([]reflect.Value, t.NumIn())
	for i := range n.Params {
		p := &n.Params[i]
		switch {
		case p.Field == nil:
			args[p.Arg] = argument(p, t.In(p.Arg), get)
		default:
			if !args[p.Arg].IsValid() {
				args[p.Arg] = reflect.New(t.In(p.Arg)).Elem()
			}
			field := args[p.Arg].FieldByIndex(p.Field)
			field.Set(argument(p, field.Type(), get))
		}
	}
	for i := range args {
		if !args[i].IsValid() && t.In(i).Kind() == reflect.Struct { // a parameter struct without fields
			args[i] = reflect.Zero(t.In(i))
		}
	}
	return args
}

func argument(p *resolve.Param, t reflect.Type, get func(resolve.Source) reflect.Value) reflect.Value {
	switch {
	case p.Group:
		list := reflect.MakeSlice(t, 0, len(p.Sources))
		for _, s := range p.Sources {
			list = reflect.Append(list, get(s))
		}
		return list
	case len(p.Sources) == 0: // optional and absent
		return reflect.Zero(t)
	}
	return get(p.Sources[0])
}

func call(n *resolve.Node, args []reflect.Value) (results []reflect.Value, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &Error{Node: n, Err: fmt.Errorf("panic: %v", v), Panicked: true, Stack: debug.Stack()}
		}
	}()
	returned := n.Fn.Value.Call(args)
	if n.ReturnsError() {
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
