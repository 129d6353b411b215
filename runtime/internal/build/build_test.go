// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package build_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/internal/build"
	"github.com/skep-operator/skep/runtime/internal/decl"
	"github.com/skep-operator/skep/runtime/internal/resolve"
)

type (
	a struct{ s string }
	b struct{ s string }
	c struct{ s string }
)

var errBroken = errors.New("broken")

// reached are the nodes of a plan without mistakes that are to be built.
func reached(t *testing.T, cells ...cell.Cell) []*resolve.Node {
	t.Helper()
	p := resolve.New("", []decl.Node{cell.Set(cells...).Declaration()}, nil)
	p.EvaluateConditions(func(reflect.Type) (reflect.Value, bool) { return reflect.Value{}, false })
	p.ResolveParams()
	p.MarkReachable()
	if err := p.Err(); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(p.Nodes, func(n *resolve.Node) bool { return !n.Reached })
}

// failures are the errors of a build, by the name of the node.
func failures(failed map[*resolve.Node]error) map[string]string {
	texts := map[string]string{}
	for n, err := range failed {
		first, _, _ := strings.Cut(err.Error(), "\n")
		texts[n.Name] = first
	}
	return texts
}

func newA() (*a, error)       { return nil, errBroken }
func newB(*a) *b              { return &b{} }
func newC() *c                { panic("whoops") }
func invokeB(*b)              {}
func invokeC(*c, *b)          {}
func invokeNothing()          {}
func invokeBroken() error     { return errBroken }
func invokeFine(*fine)        {}
func newFine() (*fine, error) { return &fine{}, nil }

type fine struct{}

func TestAFailureHurtsWhatNeedsItAndNothingElse(t *testing.T) {
	nodes := reached(t, cell.Provide(newA, newB, newC, newFine), cell.Invoke(invokeB, invokeC, invokeNothing, invokeBroken, invokeFine))
	values := build.NewValues(nil)
	failed := build.Build(nodes, values, nil)
	want := map[string]string{
		"build_test.newA":         "failed constructor: build_test.newA: broken",
		"build_test.newB":         "failed constructor: build_test.newA: broken",
		"build_test.invokeB":      "failed constructor: build_test.newA: broken",
		"build_test.newC":         "panicking constructor: build_test.newC: panic: whoops",
		"build_test.invokeC":      "panicking constructor: build_test.newC: panic: whoops",
		"build_test.invokeBroken": "failed constructor: invoke build_test.invokeBroken: broken",
	}
	if diff := cmp.Diff(want, failures(failed)); diff != "" {
		t.Error(diff)
	}
	for _, n := range nodes {
		if values.Has(n) == (failed[n] != nil) {
			t.Errorf("%s: has a value: %v", n.Name, values.Has(n))
		}
		e := new(build.Error)
		if n.Name == "build_test.newB" && (!errors.As(failed[n], &e) || e.Node.Name != "build_test.newA" || !errors.Is(e, errBroken) || e.Panicked) {
			t.Errorf("%+v", failed[n])
		}
		if n.Name == "build_test.newC" && (!errors.As(failed[n], &e) || !e.Panicked || !strings.Contains(string(e.Stack), "newC")) {
			t.Errorf("%+v", failed[n])
		}
	}
}

func TestBuildingAgainBuildsOnlyWhatHasNoValue(t *testing.T) {
	runs := map[string]int{}
	broken := true
	nodes := reached(t,
		cell.Provide(func() *a { runs["a"]++; return &a{"first"} }),
		cell.Provide(func(x *a) (*b, error) {
			runs["b"]++
			if broken {
				return nil, errBroken
			}
			return &b{x.s}, nil
		}),
		cell.Provide(func(x *b) *c { runs["c"]++; return &c{x.s} }),
		cell.Invoke(func(x *c) { runs["invoke "+x.s]++ }))
	values := build.NewValues(nil)
	if failed := build.Build(nodes, values, nil); len(failed) != 3 {
		t.Error(failures(failed))
	}
	broken = false
	for range 2 {
		if failed := build.Build(nodes, values, nil); len(failed) > 0 {
			t.Error(failures(failed))
		}
	}
	if diff := cmp.Diff(map[string]int{"a": 1, "b": 2, "c": 1, "invoke first": 1}, runs); diff != "" {
		t.Error(diff)
	}
	for _, n := range nodes {
		if n.Kind != resolve.Invoke && n.Results[0].Key.Type != reflect.TypeFor[*a]() {
			values.Forget(n)
		}
	}
	if failed := build.Build(nodes, values, nil); len(failed) > 0 || runs["a"] != 1 || runs["b"] != 3 || runs["c"] != 2 {
		t.Error(failures(failed), runs)
	}
}

func TestValuesBehindAreUsed(t *testing.T) {
	nodes := reached(t, cell.Provide(func() *a { t.Error("built again"); return nil }), cell.Provide(func(x *a) *b { return &b{x.s} }), cell.Invoke(invokeB))
	behind := build.NewValues(nil)
	behind.Set(nodes[0], reflect.ValueOf(&a{"behind"}))
	values := build.NewValues(behind)
	if failed := build.Build(nodes, values, nil); len(failed) > 0 {
		t.Fatal(failures(failed))
	}
	if got := values.Get(resolve.Source{Node: nodes[1]}).Interface().(*b); got.s != "behind" {
		t.Error(got.s)
	}
	if behind.Has(nodes[1]) {
		t.Error("the build reached behind")
	}
	if values.Get(resolve.Source{Node: nodes[1], Result: 5}).IsValid() {
		t.Error("a result that is not there")
	}
}

func TestNilResults(t *testing.T) {
	var got []any
	nodes := reached(t,
		cell.Provide(func() *a { return nil }, func() fmt.Stringer { return nil }, func() map[string]int { return nil }),
		cell.Invoke(func(x *a, s fmt.Stringer, m map[string]int) { got = append(got, x == nil, s == nil, m == nil) }))
	if failed := build.Build(nodes, build.NewValues(nil), nil); len(failed) > 0 {
		t.Fatal(failures(failed))
	}
	if !slices.Equal(got, []any{true, true, true}) {
		t.Error(got)
	}
}

type empty struct{ cell.In }

func TestAnEmptyParameterStruct(t *testing.T) {
	ran := false
	nodes := reached(t, cell.Invoke(func(empty) { ran = true }))
	if failed := build.Build(nodes, build.NewValues(nil), nil); len(failed) > 0 || !ran {
		t.Error(failures(failed), ran)
	}
}

type all struct {
	cell.In
	All []int `group:"all"`
	B   *b
}

type one struct {
	cell.Out
	One int `group:"all"`
}

// Functions take 128 parameters at most; groups have no limit.
func TestALargeGroup(t *testing.T) {
	for _, n := range []int{99, 100, 101, 199, 1000} {
		var cells []cell.Cell
		var want []int
		for i := range n {
			want = append(want, i)
			cells = append(cells, cell.Provide(func() one { return one{One: i} }))
		}
		var got []int
		cells = append(cells, cell.Provide(func() *b { return &b{"b"} }), cell.Provide(func(x all) *c { got = x.All; return &c{x.B.s} }), cell.Invoke(func(x *c) {
			if x.s != "b" {
				t.Error("the other parameter is lost")
			}
		}))
		if failed := build.Build(reached(t, cells...), build.NewValues(nil), nil); len(failed) > 0 {
			t.Fatal(failures(failed))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d members: %v", n, got)
		}
	}
}

func TestAFailureInALargeGroup(t *testing.T) {
	var cells []cell.Cell
	for i := range 300 {
		cells = append(cells, cell.Provide(func() (one, error) {
			if i == 250 {
				return one{}, errBroken
			}
			return one{One: i}, nil
		}))
	}
	ran := false
	cells = append(cells, cell.Provide(func() *b { return nil }), cell.Invoke(func(all) { ran = true }))
	if failed := build.Build(reached(t, cells...), build.NewValues(nil), nil); len(failed) != 2 || ran {
		t.Error(len(failed), ran)
	}
}

func TestObserver(t *testing.T) {
	nodes := reached(t, cell.Provide(newA, newB), cell.Invoke(invokeB, invokeNothing))
	var seen []string
	build.Build(nodes, build.NewValues(nil), func(n *resolve.Node, took time.Duration, _ error) {
		if took < 0 {
			t.Error(took)
		}
		seen = append(seen, n.Name)
	})
	if diff := cmp.Diff([]string{"build_test.newA", "build_test.invokeNothing"}, seen); diff != "" {
		t.Error("what ran is observed, also when it failed:", diff)
	}
}

// Private values, named ones and those of groups can be of one type: none of
// them takes the place of another.
func TestValuesOfOneTypeAreKeptApart(t *testing.T) {
	type out struct {
		cell.Out
		Plain *a
		Named *a `name:"x"`
		One   *a `group:"g"`
		Two   *a `group:"g"`
	}
	type in struct {
		cell.In
		Plain *a
		Named *a   `name:"x"`
		Group []*a `group:"g"`
	}
	var got []string
	note := func(x in) {
		text := x.Plain.s + x.Named.s
		for _, m := range x.Group {
			text += m.s
		}
		got = append(got, text)
	}
	nodes := reached(t,
		cell.Provide(func() out { return out{Plain: &a{"p"}, Named: &a{"n"}, One: &a{"1"}, Two: &a{"2"}} }),
		cell.Invoke(note),
		cell.Module("m", "Has its own", cell.ProvidePrivate(func() *a { return &a{"q"} }), cell.Invoke(note)),
		cell.Module("n", "Decorates", cell.Decorate(func(x *a) *a { return &a{x.s + "+"} }), cell.Invoke(note)),
	)
	if failed := build.Build(nodes, build.NewValues(nil), nil); len(failed) > 0 {
		t.Fatal(failures(failed))
	}
	if diff := cmp.Diff([]string{"pn12", "qn12", "p+n12"}, got); diff != "" {
		t.Error(diff)
	}
}
