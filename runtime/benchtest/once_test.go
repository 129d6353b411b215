// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package benchtest

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/skep-operator/skep/runtime/seedtest"
)

var runs, subRuns int

func BenchmarkCounted(b *testing.B) {
	runs += b.N
	b.Run("sub", func(b *testing.B) {
		for b.Loop() {
			subRuns++
		}
	})
}

func BenchmarkShort(b *testing.B) {
	if !testing.Short() {
		b.Error("it is not short")
	}
}

func TestBenchmarks(t *testing.T) {
	Once(t, BenchmarkCounted, BenchmarkShort)
	if runs != 1 || subRuns != 1 {
		t.Errorf("runs %d, of the sub-benchmark %d; want one of each", runs, subRuns)
	}
}

// brokenEnv makes TestBroken run benchmarks that fail.
const brokenEnv = "SKEP_TEST_BROKEN_BENCHMARKS"

func TestBroken(t *testing.T) {
	if os.Getenv(brokenEnv) == "" {
		t.Skip("run by TestBrokenBenchmarksFail")
	}
	Once(t, brokenAtOnce, brokenWithin, BenchmarkShort)
}

func brokenAtOnce(b *testing.B) { b.Fatal("broken") }

func brokenWithin(b *testing.B) { b.Run("sub", brokenAtOnce) }

func TestBrokenBenchmarksFail(t *testing.T) {
	if seedtest.RaceEnabled {
		t.Skip("benchmarks run without the race detector")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestBroken$")
	cmd.Env = append(os.Environ(), brokenEnv+"=1")
	out, err := cmd.CombinedOutput()
	if err == nil || strings.Count(string(out), "fails: run it with") != 2 ||
		!strings.Contains(string(out), "brokenAtOnce fails") || !strings.Contains(string(out), "brokenWithin fails") {
		t.Errorf("%v\n%s", err, out)
	}
}
