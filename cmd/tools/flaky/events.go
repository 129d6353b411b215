// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// event is a line of go test -json.
type event struct{ Action, Package, Test, Output string }

// history is what a file tells: the runs of each package, in order.
type history struct {
	packages []string // by first appearance
	runs     map[string][]*run
}

// run is one run of the tests of a package, or of those that ran again.
type run struct {
	results map[string]string   // how each test ended, or that it began
	order   []string            // the tests, by first appearance
	output  map[string][]string // of tests that have not passed, by the test at their root
	failed  bool                // the package
	inOrder bool                // the process came to its end and said that tests failed
	raced   bool
}

// What results has beside pass, fail and skip.
const began = "run"

// readHistory reads the events of a file; name is for errors.
func readHistory(name string, from io.Reader) (*history, error) {
	h := &history{runs: map[string][]*run{}}
	lines := bufio.NewReader(from)
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			var e event
			if err := json.Unmarshal(line, &e); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", name, number, err)
			}
			h.add(e)
		}
		if errors.Is(err, io.EOF) {
			return h, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, number, err)
		}
	}
}

// add takes the next event. A package that starts again runs again.
func (h *history) add(e event) {
	if e.Package == "" {
		return // of a build
	}
	runs := h.runs[e.Package]
	if len(runs) == 0 {
		h.packages = append(h.packages, e.Package)
	}
	if len(runs) == 0 || e.Action == "start" {
		runs = append(runs, &run{results: map[string]string{}, output: map[string][]string{}})
		h.runs[e.Package] = runs
	}
	runs[len(runs)-1].add(e)
}

func (r *run) add(e event) {
	switch {
	case e.Action == "output":
		r.addOutput(e)
	case e.Test == "":
		r.failed = r.failed || e.Action == "fail"
	case e.Action == began, e.Action == "pass", e.Action == "fail", e.Action == "skip":
		r.addResult(e)
	}
}

// addOutput keeps the output of a test with that of its parents and siblings,
// for a log of the parent's often says what the test was about.
func (r *run) addOutput(e event) {
	r.raced = r.raced || strings.Contains(e.Output, "WARNING: DATA RACE") || strings.Contains(e.Output, "race detected during execution of test")
	if e.Test == "" {
		r.inOrder = r.inOrder || e.Output == "FAIL\n"
		return
	}
	r.output[rootOf(e.Test)] = append(r.output[rootOf(e.Test)], e.Output)
}

func (r *run) addResult(e event) {
	before, known := r.results[e.Test]
	if !known {
		r.order = append(r.order, e.Test)
	}
	if before != "fail" {
		r.results[e.Test] = e.Action
	}
	if e.Action == "pass" && rootOf(e.Test) == e.Test && before != "fail" {
		delete(r.output, e.Test)
	}
}

// rootOf is the test that a subtest is part of; a test itself otherwise.
func rootOf(test string) string {
	root, _, _ := strings.Cut(test, "/")
	return root
}
