// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive_test

import (
	"context"
	"regexp"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
	"github.com/skep-operator/skep/testdata/benchcells"
)

// buildAllocations is what a build of n modules with two constructors each
// allocates.
func buildAllocations(t *testing.T, n int) float64 {
	t.Helper()
	cells := benchcells.Set(n)
	return testing.AllocsPerRun(3, func() {
		if err := newHive(cells).Build(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestBuildAllocations(t *testing.T) {
	if got := buildAllocations(t, 150); got > 30_000 {
		t.Errorf("150 modules: %.0f allocations, the budget is 30,000", got)
	} else {
		t.Logf("150 modules: %.0f allocations", got)
	}
	small, large := buildAllocations(t, 100), buildAllocations(t, 1000)
	if large/small > 12 {
		t.Errorf("100 modules: %.0f allocations, 1,000: %.0f, %.1f times as many; the budget is 12", small, large, large/small)
	} else {
		t.Logf("100 modules: %.0f allocations, 1,000: %.0f, %.1f times as many", small, large, large/small)
	}
}

func TestHeapKeptAfterBuild(t *testing.T) {
	cells := benchcells.Set(150)
	if err := newHive(cells).Build(); err != nil { // types that reflection makes are made once
		t.Fatal(err)
	}
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	h := newHive(cells)
	if err := h.Build(); err != nil {
		t.Fatal(err)
	}
	kept := heap() - before
	runtime.KeepAlive(h)
	if kept > 1<<20 {
		t.Errorf("150 modules keep %d bytes, the budget is 1 MiB", kept)
	} else {
		t.Logf("150 modules keep %d bytes", kept)
	}
}

func TestADisabledModuleCostsNothing(t *testing.T) {
	fail := func(what string) { t.Error(what + " of a disabled module ran") }
	build := func() *value { fail("a constructor"); return nil }
	off := cell.Set(cell.Config(settings{Greeting: "x"}),
		cell.Module("off", "Is off", cell.EnabledBy(enabled),
			cell.Provide(build),
			cell.ProvidePrivate(func(*value) *store { fail("a private constructor"); return nil }),
			cell.ProvidePerModule(func(cell.ModuleInfo) *client { fail("a per-module constructor"); return nil }),
			cell.ProvideProcess(func() *memory { fail("a lasting constructor"); return nil }),
			cell.Metrics(func() *termMetrics { fail("a metrics constructor"); return nil }),
			cell.Decorate(func(v *value) *value { fail("a decorator"); return v }),
			cell.Invoke(func(*value, *store, *client, *memory, *termMetrics, job.Group) { fail("an invoke") }),
			cell.Hook("hook", func(*value) lifecycle.Hook { fail("a hook's constructor"); return nil }),
			cell.Job("job", func(*value) job.Job {
				fail("a job's constructor")
				return job.OneShot(func(context.Context) error { return nil })
			}),
			cell.Module("inner", "Is off, too", cell.Hook("hook", func(*value) lifecycle.Hook { fail("a hook inside"); return nil }))))
	empty := goroutinesOf(t, cell.Set())
	if got := goroutinesOf(t, off); got != empty {
		t.Errorf("%d goroutines, without it %d", got, empty)
	}
}

// goroutinesOf is how many goroutines a hive has once it has started and stands still.
func goroutinesOf(t *testing.T, cells cell.Cell) (n int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newHive(cells)
		if err := h.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		n = goroutinesHere(t)
		if err := h.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return n
}

// goroutinesHere is how many goroutines the bubble of the caller has.
func goroutinesHere(t *testing.T) int {
	t.Helper()
	stacks := make([]byte, 1<<20)
	own := regexp.MustCompile(`synctest bubble \d+`).Find(stacks[:runtime.Stack(stacks, false)])
	if own == nil {
		t.Fatal("stacks do not name their bubble")
	}
	header := regexp.MustCompile(`(?m)^goroutine \d+ \[.*\b` + string(own) + `\b.*\]:$`)
	return len(header.FindAll(stacks[:runtime.Stack(stacks, true)], -1))
}
