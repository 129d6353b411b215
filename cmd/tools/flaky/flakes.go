// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"fmt"
	"slices"
	"strings"
)

// flake is a test that failed, and passed when it ran again.
type flake struct {
	pkg, test    string
	failed, runs int
	output       string // of the first run that failed
}

// flakes are those of a file, in the order of their first failure.
func (h *history) flakes() (all []flake) {
	for _, pkg := range h.packages {
		runs := h.runs[pkg]
		for _, test := range failedLeaves(runs) {
			if passedAfterwards(runs, test) {
				all = append(all, flakeOf(pkg, test, runs))
			}
		}
	}
	return all
}

func flakeOf(pkg, test string, runs []*run) flake {
	f := flake{pkg: pkg, test: test}
	for _, r := range runs {
		result, ran := r.results[test]
		if ran {
			f.runs++
		}
		if result == "fail" {
			f.failed++
		}
		if f.failed == 1 && f.output == "" {
			f.output = strings.Join(r.output[rootOf(test)], "")
		}
	}
	return f
}

// failedLeaves are the tests that failed in any run, without those of which a
// subtest did.
func failedLeaves(runs []*run) []string {
	var failed []string
	for _, r := range runs {
		for _, test := range r.order {
			if r.results[test] == "fail" && !slices.Contains(failed, test) {
				failed = append(failed, test)
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(failed), func(test string) bool {
		return slices.ContainsFunc(failed, func(other string) bool { return strings.HasPrefix(other, test+"/") })
	})
}

// passedAfterwards tells whether a test passed in a run after one in which it failed.
func passedAfterwards(runs []*run, test string) bool {
	failed := false
	for _, r := range runs {
		switch r.results[test] {
		case "fail":
			failed = true
		case "pass":
			if failed {
				return true
			}
		}
	}
	return false
}

// unforgiven is what a run that ran failed tests again must not call good.
func (h *history) unforgiven() (all []string) {
	for _, pkg := range h.packages {
		runs := h.runs[pkg]
		for i, r := range runs {
			if why := r.unforgiven(); why != "" {
				all = append(all, fmt.Sprintf("%s, run %d: %s", pkg, i+1, why))
			}
		}
		for _, test := range failedLeaves(runs) {
			if !passedAfterwards(runs, test) {
				all = append(all, fmt.Sprintf("%s.%s failed and has not passed since", pkg, test))
			}
		}
	}
	return all
}

// unforgiven is why a failure of a package is none of a test that may run again.
func (r *run) unforgiven() string {
	switch {
	case !r.failed:
		return ""
	case r.raced:
		return "there was a data race"
	case r.has(began), !r.inOrder && r.has("fail"):
		return "the tests did not come to their end"
	case !r.has("fail"):
		return "the package failed, though none of its tests did"
	}
	return ""
}

func (r *run) has(result string) bool {
	return slices.ContainsFunc(r.order, func(test string) bool { return r.results[test] == result })
}
