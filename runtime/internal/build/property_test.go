// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package build_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/internal/build"
	"github.com/skep-operator/skep/runtime/internal/decl"
	"github.com/skep-operator/skep/runtime/internal/resolve"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// The model: what a graph means, computed the slow and plain way.

// key is a type, by number, with a name.
type key struct {
	typ  int
	name string
}

// function is a constructor, a decorator or a hook of the model.
type function struct {
	id     string
	module *module
	kind   string // public, private, member, decorator, hook
	key    key    // what it makes
	takes  []need
	index  int // in declaration order of all functions
}

type need struct {
	key      key
	optional bool
	group    bool
}

type module struct {
	id        string
	parent    *module
	off       bool
	functions []*function // in declaration order
	inside    []*module
}

func (m *module) enabled() bool { return m == nil || !m.off && m.parent.enabled() }

type world struct {
	modules   []*module // the first one is the list itself
	functions []*function
}

// all are the functions of a kind, of enabled modules, in declaration order.
func (w *world) all(kind string) []*function {
	return slices.DeleteFunc(slices.Clone(w.functions), func(f *function) bool { return f.kind != kind || !f.module.enabled() })
}

// provider is who provides a key to a function, or nil.
func (w *world) provider(f *function, k key) *function {
	for m := f.module; m != nil; m = m.parent {
		var last *function
		for _, d := range m.functions {
			if d == f {
				break
			}
			if d.kind == "decorator" && d.key == k && m.enabled() {
				last = d
			}
		}
		if f.module != m || f.kind != "decorator" || f.key != k { // not one of them
			for _, d := range m.functions {
				if d.kind == "decorator" && d.key == k && m.enabled() {
					last = d
				}
			}
		}
		if last != nil {
			return last
		}
		for _, p := range m.functions {
			if p.kind == "private" && p.key == k && m.enabled() {
				return p
			}
		}
	}
	for _, p := range w.all("public") {
		if p.key == k {
			return p
		}
	}
	return nil
}

// sources are the functions whose results f is given, need by need.
func (w *world) sources(f *function) [][]*function {
	var list [][]*function
	for _, n := range f.takes {
		var from []*function
		if n.group {
			for _, p := range w.all("member") {
				if p.key == n.key {
					from = append(from, p)
				}
			}
		} else if p := w.provider(f, n.key); p != nil {
			from = []*function{p}
		}
		list = append(list, from)
	}
	return list
}

// value is what a function makes.
func (w *world) value(f *function) string {
	var args []string
	for i, from := range w.sources(f) {
		var texts []string
		for _, p := range from {
			texts = append(texts, w.value(p))
		}
		text := strings.Join(texts, " ")
		if f.takes[i].group {
			text = "[" + text + "]"
		}
		args = append(args, text)
	}
	return f.id + "(" + strings.Join(args, ", ") + ")"
}

// needs are all functions that a function needs, directly or not.
func (w *world) needs(f *function, into map[*function]bool) map[*function]bool {
	for _, from := range w.sources(f) {
		for _, p := range from {
			if !into[p] {
				into[p] = true
				w.needs(p, into)
			}
		}
	}
	return into
}

// serves reports whether a hook serves what a function makes: a value of its
// own module that it takes, or what others have made of one by decorating it.
func (w *world) serves(hook, f *function) bool {
	for _, from := range w.sources(hook) {
		for _, taken := range from {
			chain := []*function{taken}
			for taken.kind == "decorator" && taken.module != hook.module {
				taken = w.provider(taken, taken.key)
				chain = append(chain, taken)
			}
			if taken.module == hook.module && slices.Contains(chain, f) {
				return true
			}
		}
	}
	return false
}

// order is the canonical start order of the hooks.
func (w *world) order() []string {
	hooks := w.all("hook")
	after := map[*function]map[*function]bool{}
	for _, h := range hooks {
		after[h] = map[*function]bool{}
		for f := range w.needs(h, map[*function]bool{}) {
			for _, other := range hooks {
				together := slices.ContainsFunc(w.functions, func(v *function) bool { return w.serves(h, v) && w.serves(other, v) })
				if other != h && w.serves(other, f) && (!together || other.index < h.index) {
					after[h][other] = true
				}
			}
		}
	}
	var order []string
	placed := map[*function]bool{}
	for len(order) < len(hooks) {
		i := slices.IndexFunc(hooks, func(h *function) bool {
			for other := range after[h] {
				if !placed[other] {
					return false
				}
			}
			return !placed[h]
		})
		if i < 0 {
			return nil // no order fits
		}
		placed[hooks[i]] = true
		order = append(order, hooks[i].id)
	}
	return order
}

// The generator.

const kinds = 8 // of types

func randomWorld(rng *rand.Rand) *world {
	w := &world{modules: []*module{{}}}
	for i := range 1 + rng.IntN(5) {
		parent := w.modules[rng.IntN(len(w.modules))]
		m := &module{id: fmt.Sprintf("m%d", i), parent: parent, off: rng.IntN(5) == 0}
		parent.inside = append(parent.inside, m)
		w.modules = append(w.modules, m)
	}
	provided := map[key]bool{}
	add := func(m *module, kind string, k key, takes []need) {
		m.functions = append(m.functions, &function{id: fmt.Sprintf("%c%d", kind[0], len(w.functions)), module: m, kind: kind, key: k, takes: takes})
		w.functions = append(w.functions, m.functions[len(m.functions)-1])
	}
	for range 4 + rng.IntN(24) {
		m := w.modules[rng.IntN(len(w.modules))]
		k := randomKey(rng, kinds)
		switch rng.IntN(10) {
		case 0, 1, 2, 3:
			if !provided[k] {
				provided[k] = true
				add(m, "public", k, w.randomNeeds(rng, m, k.typ))
			}
		case 4:
			if !slices.ContainsFunc(m.functions, func(f *function) bool { return f.kind == "private" && f.key == k }) {
				add(m, "private", k, w.randomNeeds(rng, m, k.typ))
				add(m, "hook", key{}, []need{{key: k}}) // an unused one is a mistake
			}
		case 5:
			add(m, "member", key{typ: k.typ, name: "g"}, w.randomNeeds(rng, m, k.typ))
		case 6:
			if w.provider(&function{module: m}, k) != nil {
				add(m, "decorator", k, append([]need{{key: k}}, w.randomNeeds(rng, m, k.typ)...))
			}
		default:
			add(m, "hook", key{}, w.randomNeeds(rng, m, kinds))
		}
	}
	// Declaration order is that of the list: what stands directly in a module
	// comes before the modules inside.
	w.functions = nil
	w.number(w.modules[0])
	return w
}

func (w *world) number(m *module) {
	for _, f := range m.functions {
		f.index = len(w.functions)
		w.functions = append(w.functions, f)
	}
	for _, in := range m.inside {
		w.number(in)
	}
}

func randomKey(rng *rand.Rand, below int) key {
	k := key{typ: rng.IntN(below)}
	if rng.IntN(5) == 0 {
		k.name = "x"
	}
	return k
}

// randomNeeds are keys of lower types, so that nothing needs itself. What is
// not optional is there.
func (w *world) randomNeeds(rng *rand.Rand, m *module, below int) []need {
	var needs []need
	if below == 0 {
		return nil
	}
	for range rng.IntN(4) {
		n := need{key: randomKey(rng, below), optional: rng.IntN(3) == 0, group: rng.IntN(6) == 0}
		if n.group {
			n.key, n.optional = key{typ: n.key.typ, name: "g"}, false
		}
		if n.group || n.optional || m.enabled() && w.provider(&function{module: m}, n.key) != nil {
			needs = append(needs, n)
		}
	}
	return needs
}

// The same as cells.

// on are options that switch modules, all false.
type on struct{ Always bool }

func (on) Flags(*pflag.FlagSet) {}

var never = cell.When("it never is", nil, func(c on) bool { return c.Always })

func typeOf(n int) reflect.Type {
	return reflect.StructOf([]reflect.StructField{{Name: "Text", Type: reflect.TypeFor[string](), Tag: reflect.StructTag(fmt.Sprintf(`type:"%d"`, n))}})
}

// recorder notes which functions run and what hooks are given.
type recorder struct {
	runs   map[string]int
	values map[string]string
}

// made is a function as cells have it: it takes a struct, or, without names
// and groups, plain parameters.
func (r *recorder) made(f *function, plain bool) any {
	plain = plain && !slices.ContainsFunc(f.takes, func(n need) bool { return n.group || n.optional || n.key.name != "" })
	fields := []reflect.StructField{{Name: "In", Type: reflect.TypeFor[cell.In](), Anonymous: true}}
	var in []reflect.Type
	for i, n := range f.takes {
		field := reflect.StructField{Name: fmt.Sprintf("F%d", i), Type: typeOf(n.key.typ)}
		var tags []string
		if n.group {
			field.Type, tags = reflect.SliceOf(field.Type), append(tags, `group:"g"`)
		} else if n.key.name != "" {
			tags = append(tags, fmt.Sprintf(`name:%q`, n.key.name))
		}
		if n.optional {
			tags = append(tags, `optional:"true"`)
		}
		field.Tag = reflect.StructTag(strings.Join(tags, " "))
		fields, in = append(fields, field), append(in, field.Type)
	}
	if !plain {
		in = []reflect.Type{reflect.StructOf(fields)}
	}
	out := reflect.TypeFor[lifecycle.Hook]()
	if f.kind != "hook" {
		out = typeOf(f.key.typ)
		if f.key.name != "" {
			tag := "name"
			if f.kind == "member" {
				tag = "group"
			}
			out = reflect.StructOf([]reflect.StructField{
				{Name: "Out", Type: reflect.TypeFor[cell.Out](), Anonymous: true},
				{Name: "V", Type: out, Tag: reflect.StructTag(fmt.Sprintf(`%s:%q`, tag, f.key.name))},
			})
		}
	}
	return reflect.MakeFunc(reflect.FuncOf(in, []reflect.Type{out}, false), func(args []reflect.Value) []reflect.Value {
		if !plain {
			var list []reflect.Value
			for i := range f.takes {
				list = append(list, args[0].Field(i+1))
			}
			args = list
		}
		var texts []string
		for _, a := range args {
			texts = append(texts, textOf(a))
		}
		text := f.id + "(" + strings.Join(texts, ", ") + ")"
		r.runs[f.id]++
		result := reflect.New(out).Elem()
		switch {
		case f.kind == "hook":
			r.values[f.id] = text
		case f.key.name != "":
			result.Field(1).Field(0).SetString(text)
		default:
			result.Field(0).SetString(text)
		}
		return []reflect.Value{result}
	}).Interface()
}

func textOf(v reflect.Value) string {
	if v.Kind() == reflect.Struct {
		return v.Field(0).String()
	}
	var texts []string
	for i := range v.Len() {
		texts = append(texts, textOf(v.Index(i)))
	}
	return "[" + strings.Join(texts, " ") + "]"
}

func (r *recorder) cells(rng *rand.Rand, m *module) []cell.Cell {
	var cells []cell.Cell
	if m.off {
		cells = append(cells, cell.EnabledBy(never))
	}
	for _, f := range m.functions {
		fn := r.made(f, rng.IntN(2) == 0)
		switch f.kind {
		case "public", "member":
			cells = append(cells, cell.Provide(fn))
		case "private":
			cells = append(cells, cell.ProvidePrivate(fn))
		case "decorator":
			cells = append(cells, cell.Decorate(fn))
		default:
			cells = append(cells, cell.Hook(f.id, fn))
		}
	}
	for _, in := range m.inside {
		cells = append(cells, cell.Module(in.id, "Is random", r.cells(rng, in)...))
	}
	return cells
}

// TestRandomGraphs compares values, what runs, and the start order with the
// model.
func TestRandomGraphs(t *testing.T) {
	for seed := range uint64(800) {
		rng := rand.New(rand.NewPCG(seed, 2))
		w := randomWorld(rng)
		r := &recorder{runs: map[string]int{}, values: map[string]string{}}
		p := resolve.New("", []decl.Node{cell.Set(r.cells(rng, w.modules[0])...).Declaration()}, nil)
		p.EvaluateConditions(func(t reflect.Type) (reflect.Value, bool) { return reflect.ValueOf(on{}), t == reflect.TypeFor[on]() })
		p.ResolveParams()
		p.MarkReachable()
		if err := p.Err(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		wantOrder := w.order()
		orders := p.Orders()
		if err := p.Err(); (err != nil) != (wantOrder == nil && len(w.all("hook")) > 0) {
			t.Fatalf("seed %d: %v, want order %v", seed, err, wantOrder)
		}
		var order []string
		for _, s := range orders[0].Steps {
			order = append(order, s.Node.Name)
		}
		if diff := cmp.Diff(wantOrder, order); p.Err() == nil && diff != "" {
			t.Fatalf("seed %d: order: %s", seed, diff)
		}

		var nodes []*resolve.Node
		for _, n := range p.Nodes {
			if n.Reached {
				nodes = append(nodes, n)
			}
		}
		if failed := build.Build(nodes, build.NewValues(nil), nil); len(failed) > 0 {
			t.Fatalf("seed %d: %v", seed, failed)
		}
		wantRuns, wantValues := map[string]int{}, map[string]string{}
		for _, h := range w.all("hook") {
			wantRuns[h.id], wantValues[h.id] = 1, w.value(h)
			for f := range w.needs(h, map[*function]bool{}) {
				wantRuns[f.id] = 1
			}
		}
		if diff := cmp.Diff(wantValues, r.values); diff != "" {
			t.Fatalf("seed %d: values: %s", seed, diff)
		}
		if diff := cmp.Diff(wantRuns, r.runs); diff != "" {
			t.Fatalf("seed %d: runs: %s", seed, diff)
		}
	}
}
