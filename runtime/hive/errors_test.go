// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive_test

import (
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/hive/testdata/mistakes"
)

var update = flag.Bool("update", false, "write the golden files")

// TestErrors compares what is said about each kind of mistake with a golden
// file. Each error is at most ten lines.
func TestErrors(t *testing.T) {
	known := map[string]bool{}
	for _, c := range mistakes.Cases() {
		file := filepath.Join("testdata", "errors", c.Name+".txt")
		if known[file] {
			t.Fatalf("two cases are called %s", c.Name)
		}
		known[file] = true
		t.Run(c.Name, func(t *testing.T) {
			got := tryAll(t, c)
			for problem := range strings.SplitSeq(got, "\n\n") {
				if n := strings.Count(problem, "\n") + 1; n > 10 {
					t.Errorf("%d lines for one mistake:\n%s", n, problem)
				}
			}
			if *update {
				if err := os.WriteFile(file, []byte(got+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got+"\n"); diff != "" {
				t.Error(diff)
			}
		})
	}
	files, err := filepath.Glob(filepath.Join("testdata", "errors", "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !known[f] {
			t.Errorf("%s belongs to no case", f)
		}
	}
}

// tryAll is the error of a list of cells, which must come out the same twice,
// from the same hive and from another.
func tryAll(t *testing.T, c mistakes.Case) string {
	t.Helper()
	var texts []string
	for range 2 {
		h := hive.New("test", c.Cells, hive.LogTo(io.Discard), hive.Environ(func(string) (string, bool) { return "", false }))
		var err error
		fs := h.FlagSet()
		if err = fs.Parse(c.Args); err != nil {
			t.Fatal(err)
		}
		_ = h.Configure(fs)
		for range 2 {
			if err = errors.Join(h.Build()); err == nil {
				err = h.TryTerms()
			}
			if err == nil {
				t.Fatal("no error")
			}
			texts = append(texts, err.Error())
		}
		if err := h.Start(t.Context()); err == nil && h.TryTerms() == nil {
			t.Error("it starts all the same")
		}
		if err := h.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for _, text := range texts[1:] {
		if diff := cmp.Diff(texts[0], text); diff != "" {
			t.Error("told differently:", diff)
		}
	}
	return texts[0]
}
