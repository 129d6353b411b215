// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package celltest checks what every cell owes to those who run, configure and
// embed it. A cell calls Check in a test of its own; a test of the repository
// fails for a cell that does not.
package celltest

import (
	"context"
	"io"
	"path"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/lifecycle"
	"github.com/skep-operator/skep/runtime/waittest"
)

// Option says what a cell needs to be checked.
type Option func(*check)

// With adds the cells that the one under test asks things of. They should be
// the real ones, with nothing behind them: an API server that is away must not
// keep a cell from starting or stopping.
func With(cells ...cell.Cell) Option {
	return func(c *check) { c.with = append(c.with, cells...) }
}

// InTerm checks a cell that lives in the term of the given name.
func InTerm(name string) Option { return func(c *check) { c.term = name } }

// Args are the options under which the cell is on, as on a command line.
func Args(args ...string) Option { return func(c *check) { c.on = args } }

// OffArgs are options under which the modules of the cell are off that have a condition and are on under Args. A cell
// that has such modules names some, another one does not.
func OffArgs(args ...string) Option { return func(c *check) { c.off = args } }

// ModuleID is the id of a module whose folder has another name by now: ids are public.
func ModuleID(id string) Option { return func(c *check) { c.id = id } }

type check struct {
	t    *testing.T
	cell cell.Cell
	id   string
	with []cell.Cell
	term string
	on   []string
	off  []string
}

// Check checks a cell:
//
//   - its module id is its path below the folder of cells, with dots;
//   - its title is one sentence without a full stop;
//   - its flags are named and documented like flags, and their defaults survive
//     being written down and read again;
//   - the graph of the cell and what it needs has no mistakes;
//   - it starts and stops, twice, with nothing behind it, and leaves no goroutine;
//     writes without a cause fail;
//   - a module of it that is off builds nothing and starts nothing, see OffArgs.
func Check(t *testing.T, c cell.Cell, opts ...Option) {
	t.Helper()
	t.Setenv(strictCause, "1")
	k := &check{t: t, cell: c, id: callerID(t)}
	for _, o := range opts {
		o(k)
	}
	t.Run("declaration", k.declaration)
	t.Run("flags", k.flags)
	t.Run("start and stop twice", k.lifecycle)
	t.Run("off costs nothing", k.disabled)
}

// strictCause makes writes without a cause fail, see resources/k8s.
const strictCause = "SKEP_STRICT_CAUSE"

// callerID is the module id that the folder of the calling test asks for.
func callerID(t *testing.T) string {
	t.Helper()
	pc, _, _, ok := runtime.Caller(2)
	if !ok {
		t.Fatal("celltest: no caller")
	}
	name := runtime.FuncForPC(pc).Name()
	pkg := name[:strings.LastIndexByte(name, '/')+1]
	last, _, _ := strings.Cut(name[len(pkg):], ".")
	full := path.Join(pkg, strings.TrimSuffix(last, "_test"))
	_, below, ok := strings.Cut(full, "/cells/")
	if !ok {
		_, below, ok = strings.Cut(full, "/resources/")
	}
	if !ok {
		t.Fatalf("celltest: %s is not below a folder of cells or resources", full)
	}
	return strings.ReplaceAll(below, "/", ".")
}

func (k *check) hive(t *testing.T, args []string) *hive.Hive {
	t.Helper()
	cells := k.with
	if k.term == "" {
		cells = append(cells, k.cell)
	} else {
		cells = append(cells, termCell(k.term), cell.Term(k.term, k.cell))
	}
	h := hive.New("celltest", cell.Set(cells...), hive.LogTo(io.Discard),
		hive.Environ(func(string) (string, bool) { return "", false }), hive.StartStopTimeouts(30*time.Second, 30*time.Second))
	fs := h.FlagSet()
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	if err := h.Configure(fs); err != nil {
		t.Fatal(err)
	}
	return h
}

// termCell enters a term when it starts and leaves it when it stops.
func termCell(name string) cell.Cell {
	return cell.Module("celltest-"+name, "Enters the term under test", cell.Hook("enter", enterer(name)))
}

// enterer makes a constructor that takes the handle of the named term: names
// stand in tags, which is why it is made by reflection.
func enterer(name string) any {
	in := reflect.StructOf([]reflect.StructField{
		{Name: "In", Type: reflect.TypeFor[cell.In](), Anonymous: true},
		{Name: "Term", Type: reflect.TypeFor[lifecycle.Term](), Tag: reflect.StructTag(`name:"` + name + `"`)},
	})
	fn := reflect.FuncOf([]reflect.Type{in}, []reflect.Type{reflect.TypeFor[lifecycle.Hook]()}, false)
	return reflect.MakeFunc(fn, func(args []reflect.Value) []reflect.Value {
		term := args[0].Field(1).Interface().(lifecycle.Term)
		hook := lifecycle.Hook(lifecycle.Funcs{OnStart: term.Enter, OnStop: term.Leave})
		return []reflect.Value{reflect.ValueOf(&hook).Elem()}
	}).Interface()
}

func (k *check) module(t *testing.T, h *hive.Hive) graph.Module {
	t.Helper()
	g := h.Graph()
	m := g.Module(k.id)
	if m == nil {
		t.Fatalf("no module has the id %q, which the folder asks for; there are %v", k.id, g.ModuleIDs())
	}
	return *m
}

var (
	flagName = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)
	sentence = regexp.MustCompile(`^[A-Z].*[^.]$`)
)

func (k *check) declaration(t *testing.T) {
	h := k.hive(t, k.on)
	m := k.module(t, h)
	if !sentence.MatchString(m.Title) {
		t.Errorf("title %q: write one sentence that begins with a capital and has no full stop", m.Title)
	}
	if err := h.Check(); err != nil {
		t.Errorf("the graph of the cell and what it needs: %v", err)
	}
	if !m.Enabled {
		t.Errorf("the cell is off (%s); name the options that switch it on with celltest.Args", m.Reason)
	}
}

func (k *check) flags(t *testing.T) {
	h := k.hive(t, k.on)
	var args []string
	for _, o := range k.module(t, h).Options {
		if !flagName.MatchString(o.Name) {
			t.Errorf("flag %q: use lower-case words with dashes between", o.Name)
		}
		if !sentence.MatchString(o.Usage) {
			t.Errorf("flag %s: usage %q: write a sentence that begins with a capital and has no full stop", o.Name, o.Usage)
		}
		if !o.Ignored && o.Default != "" {
			args = append(args, "--"+o.Name+"="+o.Default)
		}
	}
	again := k.hive(t, append(args, k.on...))
	for _, e := range again.Values().Entries() {
		if e.Module == k.id && !e.Option.Ignored && !e.AtDefault() && !k.given(e.Name) {
			t.Errorf("flag %s: its default %q reads as %q", e.Name, e.Default, e.Value)
		}
	}
}

// given reports whether an option is among those that switch the cell on.
func (k *check) given(name string) bool {
	for _, a := range k.on {
		if flag, _, _ := strings.Cut(strings.TrimPrefix(a, "--"), "="); flag == name {
			return true
		}
	}
	return false
}

func (k *check) lifecycle(t *testing.T) {
	defer waittest.NoLeaks(t, goleak.IgnoreCurrent())
	for range 2 {
		h := k.hive(t, k.on)
		if err := h.Start(t.Context()); err != nil {
			t.Fatalf("start: %v", err)
		}
		if err := h.Stop(context.Background()); err != nil {
			t.Fatalf("stop: %v", err)
		}
	}
}

// disabled checks that a module that is off costs nothing: nested modules count, and each that has a condition is off
// under Args or OffArgs.
func (k *check) disabled(t *testing.T) {
	on := k.hive(t, k.on)
	var conditional []string
	for _, m := range k.modules(t, on) {
		if m.Enabled && len(m.Conditions) > 0 {
			conditional = append(conditional, m.ID)
		}
	}
	k.checkDisabled(t, on)
	switch {
	case len(conditional) == 0 && k.off != nil:
		t.Fatal("no module of the cell is on by a condition; remove celltest.OffArgs")
	case len(conditional) == 0:
		return
	case k.off == nil:
		t.Fatalf("%v have a condition; name options that switch them off with celltest.OffArgs", conditional)
	}
	off := k.hive(t, k.off)
	for _, id := range conditional {
		if off.Graph().Module(id).Enabled {
			t.Errorf("%s is on under %v", id, k.off)
		}
	}
	k.checkDisabled(t, off)
}

// modules are that of the cell and those nested in it.
func (k *check) modules(t *testing.T, h *hive.Hive) []graph.Module {
	t.Helper()
	nested := []graph.Module{k.module(t, h)}
	for _, m := range h.Graph().Modules {
		if strings.HasPrefix(m.ID, k.id+".") {
			nested = append(nested, m)
		}
	}
	return nested
}

func (k *check) checkDisabled(t *testing.T, h *hive.Hive) {
	t.Helper()
	g := h.Graph()
	off := map[string]bool{}
	for _, m := range k.modules(t, h) {
		off[m.ID] = !m.Enabled
	}
	for _, n := range g.Nodes {
		if n.Reached && (off[n.Module] || off[n.For]) && n.Kind != "config" {
			t.Errorf("%s %s is built although its module is off", n.Kind, n.Name)
		}
	}
	for _, o := range g.Orders {
		for _, s := range o.Steps {
			if off[s.Module] {
				t.Errorf("%s starts although its module is off", s.ID)
			}
		}
	}
}
