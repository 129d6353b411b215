// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive_test

import (
	"context"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/lifecycle"
	"github.com/skep-operator/skep/runtime/waittest"
)

func TestMain(m *testing.M) { waittest.Main(m) }

var errBroken = errors.New("broken")

// newHive is a hive that logs nothing and reads no environment.
func newHive(cells cell.Cell, opts ...hive.Option) *hive.Hive {
	return hive.New("test", cells, append([]hive.Option{hive.LogTo(io.Discard), noEnvironment}, opts...)...)
}

var noEnvironment = hive.Environ(func(string) (string, bool) { return "", false })

// started starts a hive and stops it at the end of the test.
func started(t *testing.T, cells cell.Cell, opts ...hive.Option) *hive.Hive {
	t.Helper()
	h := newHive(cells, opts...)
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return h
}

// configured parses arguments for a hive.
func configured(t *testing.T, h *hive.Hive, args ...string) *hive.Hive {
	t.Helper()
	fs := h.FlagSet()
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	_ = h.Configure(fs) // the outcome is remembered
	return h
}

// diary notes what happens, in order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) add(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

func (d *diary) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	lines := d.lines
	d.lines = nil
	return lines
}

func (d *diary) want(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, d.take()); diff != "" {
		t.Error(diff)
	}
}

// wantSorted is for what happens at the same time.
func (d *diary) wantSorted(t *testing.T, want ...string) {
	t.Helper()
	got := d.take()
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// hook notes its starts and stops.
func (d *diary) hook(name string) lifecycle.Hook {
	return lifecycle.Funcs{
		OnStart: func(context.Context) error { d.add("start " + name); return nil },
		OnStop:  func(context.Context) error { d.add("stop " + name); return nil },
	}
}

// leader is the handle of the term leader.
type leader struct {
	cell.In
	Term lifecycle.Term `name:"leader"`
}

// entering gives a test the handle of the term leader.
func entering(term *lifecycle.Term) cell.Cell {
	return cell.Module("entering", "Gives the test the handle", cell.Invoke(func(l leader) { *term = l.Term }))
}

// watching gives a test the health of its hive.
func watching(tree **health.Tree) cell.Cell {
	return cell.Module("watching", "Gives the test the health", cell.Invoke(func(t *health.Tree) { *tree = t }))
}

var lineNumber = regexp.MustCompile(`(_test\.go):\d+`)

// statuses are all reports as lines, without the line numbers of tests.
func statuses(tree *health.Tree) []string {
	var list []string
	for _, s := range tree.Snapshot() {
		line := string(s.Level) + " " + s.ID
		if s.Message != "" {
			line += ": " + s.Message
		}
		if s.Error != "" {
			first, _, _ := strings.Cut(s.Error, "\n")
			line += ": " + lineNumber.ReplaceAllString(first, "$1")
		}
		list = append(list, line)
	}
	return list
}

func wantHealth(t *testing.T, tree *health.Tree, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, statuses(tree)); diff != "" {
		t.Error(diff)
	}
}

// family is what a registry gathers.
type family = *dto.MetricFamily
