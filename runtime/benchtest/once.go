// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package benchtest

import (
	"flag"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/skep-operator/skep/runtime/seedtest"
)

// Once runs each benchmark for one iteration, as -short -benchtime=1x does. It skips under
// the race detector, which measures nothing:
//
//	func TestBenchmarks(t *testing.T) { benchtest.Once(t, BenchmarkDecode) }
func Once(t *testing.T, benchmarks ...func(*testing.B)) {
	t.Helper()
	if seedtest.RaceEnabled {
		t.Skip("benchmarks run without the race detector")
	}
	set(t, "test.short", "true")
	set(t, "test.benchtime", "1x")
	for _, benchmark := range benchmarks {
		failed := false
		testing.Benchmark(func(b *testing.B) {
			defer func() { failed = failed || b.Failed() }() // its result does not say so, nor why
			benchmark(b)
		})
		if failed {
			t.Errorf("%s fails: run it with -run '^$' -bench . -benchtime 1x -short", name(benchmark))
		}
	}
}

// set sets a flag for the time of the test.
func set(t *testing.T, name, value string) {
	t.Helper()
	before := flag.Lookup(name).Value.String()
	if err := flag.Set(name, value); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := flag.Set(name, before); err != nil {
			t.Fatal(err)
		}
	})
}

func name(benchmark func(*testing.B)) string {
	full := runtime.FuncForPC(reflect.ValueOf(benchmark).Pointer()).Name()
	return full[strings.LastIndex(full, ".")+1:]
}
