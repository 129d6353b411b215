// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestRerun drives the Makefile's own way to run tests, with a package that
// fails in a known way.
func TestRerun(t *testing.T) {
	if testing.Short() {
		t.Skip("runs go test many times")
	}
	const ways, unbuilt = "./flaky/testdata/ways", "./flaky/testdata/unbuilt"
	for _, c := range []struct {
		way, packages, flags string
		runs                 int    // of the package
		red                  string // what is said when the run is red
		flaky                int
	}{
		{"once-4", ways, "-short", 5, "", 4},
		{"always", ways, "-short", 3, "failed again", 0},
		{"always-6", ways, "-short", 1, "number of test failures (6) exceeds maximum (5)", 0},
		{"panics", ways, "-short", 1, "suspected panic", 0},
		{"hangs", ways, "-short -timeout 1s", 1, "suspected panic", 0},
		{"dies", ways, "-short", 2, "run 1: the tests did not come to their end", 0},
		{"leak", ways, "-short", 2, "run 1: the package failed, though none of its tests did", 0},
		{"skips", ways, "-short", 2, "TestWay/sub/0 failed and has not passed since", 0},
		{"renamed", ways, "-short", 2, "failed and has not passed since", 0},
		{"unbuilt", unbuilt, "-short", 1, "undefined: missing", 0},
	} {
		t.Run(c.way, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			out, err := runTests(t, dir, "SKEP_WAY="+c.way, "FLAGS="+c.flags, "PACKAGES="+c.packages)
			if (err != nil) != (c.red != "") || !strings.Contains(out, c.red) {
				t.Errorf("the run ends with %v and must be red with %q:\n%s", err, c.red, out)
			}
			var lines bytes.Buffer
			err = report(&lines, dir, 3)
			if n := strings.Count(lines.String(), "FLAKY "); n != c.flaky || (err != nil) != (n > 3) {
				t.Errorf("%d tests are flaky, not %d; %v\n%s", n, c.flaky, err, &lines)
			}
			if n := runsOf(t, dir); n != c.runs {
				t.Errorf("the package ran %d times, not %d:\n%s", n, c.runs, out)
			}
		})
	}
}

// TestRerunLog reads what is told and kept of a flaky test, and that a rerun
// takes nothing from the cache.
func TestRerunLog(t *testing.T) {
	if testing.Short() {
		t.Skip("runs go test many times")
	}
	t.Parallel()
	dir := t.TempDir()
	args := []string{"SKEP_WAY=once", "FLAGS=-short", "PACKAGES=./flaky/testdata/ways"}
	if out, err := runTests(t, dir, args...); err != nil || !strings.Contains(out, "--- FAIL: TestWay/sub/0") {
		t.Fatal(err, out)
	}
	var lines bytes.Buffer
	if err := report(&lines, dir, 3); err != nil {
		t.Fatal(err)
	}
	const name = "github.com_skep-operator_skep_cmd_tools_flaky_testdata_ways.TestWay_sub_0.log"
	want := "FLAKY 1: github.com/skep-operator/skep/cmd/tools/flaky/testdata/ways.TestWay/sub/0 (1 of 2 runs failed; first output in " + filepath.Join(dir, name) + ")\n"
	if lines.String() != want {
		t.Errorf("got  %s want %s", &lines, want)
	}
	kept, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil || !strings.Contains(string(kept), "failed for the first time") || !strings.Contains(string(kept), "the parent speaks") {
		t.Errorf("%v: %s", err, kept)
	}
	if out, err := runTests(t, dir, append(args, "RERUNS=0", "SKEP_WAY=always")...); err == nil || runsOf(t, dir) != 1 {
		t.Errorf("RERUNS=0 runs again: %v\n%s", err, out)
	}
}

// TestRerunCache finds results of good runs in Go's cache.
func TestRerunCache(t *testing.T) {
	if testing.Short() {
		t.Skip("runs go test many times")
	}
	t.Parallel()
	var out string
	for range 2 {
		var err error
		if out, err = runTests(t, t.TempDir(), "SKEP_WAY=", "FLAGS=-short", "PACKAGES=./flaky/testdata/ways"); err != nil {
			t.Fatal(err, out)
		}
	}
	if !strings.Contains(out, "ok  \t") || !strings.Contains(out, "(cached)") {
		t.Error(out)
	}
}

// runTests runs the tests of a package as the Makefile does, and returns what is printed.
func runTests(t *testing.T, dir string, variables ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "make", "--no-print-directory", "-C", "../../..", "-f", "cmd/tools/flaky/testdata/proof.mk", "FLAKY="+dir, "proof")
	cmd.Args = append(cmd.Args, variables...)
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); !slices.Contains([]string{"RERUNS", "GOFLAGS", "MFLAGS"}, name) && !strings.HasPrefix(name, "MAKE") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	cmd.Env = append(cmd.Env, "SKEP_SEEN="+dir)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// runsOf counts how often the package started.
func runsOf(t *testing.T, dir string) int {
	t.Helper()
	events, err := os.ReadFile(filepath.Join(dir, "proof.json"))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(events, []byte(`"Action":"start"`))
}
