// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/skep-operator/skep/cmd/bench/internal/contest"
)

// The test binary is the bench in the processes that a run starts.
func TestMain(m *testing.M) {
	if contest.IsChild() {
		main()
		return
	}
	os.Exit(m.Run())
}

// A run of every contestant, small, so that none rots.
func TestEveryContestantRuns(t *testing.T) {
	if testing.Short() {
		t.Skip("runs everything once, which takes half a minute")
	}
	var out strings.Builder
	if err := run(t.Context(), []string{"-rounds", "1", "-pods", "1000"}, &out, io.Discard); err != nil && !errors.Is(err, errRed) {
		t.Fatalf("%v\n%s", err, out.String())
	}
	t.Log(out.String())
}

func TestMistakesInTheArguments(t *testing.T) {
	for args, want := range map[string]string{
		"-o yaml":      "no such format",
		"-rounds 0":    "at least 1",
		"-run nothing": "matches none of graph, sync, update, fanout",
		"-run (":       "-run: error parsing regexp",
		"-pods 1 more": "takes no arguments",
	} {
		err := run(t.Context(), strings.Fields(args), io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error that says %q", args, err, want)
		}
	}
}
