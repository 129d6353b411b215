// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package docs

import (
	"go/ast"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// saysAt is where in a call the text stands that health or explain shows to users.
var saysAt = map[string]int{
	"Degraded":      0, // health.Reporter
	"degraded":      0, // runtime/job
	"ReportBlocked": 2, // runtime/health
	"SetReason":     1, // resources/explain
	"refuse":        1, // cells/ipam/clusterpool
	"unavailable":   0, // cells/gateway
}

var (
	// Why something waits, or is not there: constants with these beginnings.
	reason = regexp.MustCompile(`^(none|waits): `)
	// Why a sweep does nothing: errors and texts with these words.
	sweepReason = regexp.MustCompile(`\b(nothing|no \w+) is deleted\b`)
	letters     = regexp.MustCompile(`\pL`)
	saysRow     = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| [^|]+ \\| [^|]+ \\|$")
)

// TestTroubleshootingHasEachReason compares the tables of troubleshooting.md with what the
// code reports as degraded, waiting, refused or not done.
func TestTroubleshootingHasEachReason(t *testing.T) {
	page := readText(t, "troubleshooting.md")
	rows := map[string]bool{}
	for _, row := range saysRow.FindAllStringSubmatch(page, -1) {
		rows[row[1]] = true
	}
	reported := reportedTexts(t)
	if len(reported) < 50 {
		t.Fatalf("%d texts found", len(reported))
	}
	for _, text := range slices.Sorted(maps.Keys(reported)) {
		if !rows[text] {
			t.Errorf("docs/troubleshooting.md has no row for `%s`, which %s reports: say what it means and what to do", text, reported[text])
		}
	}
	for _, text := range slices.Sorted(maps.Keys(rows)) {
		if reported[text] == "" {
			t.Errorf("docs/troubleshooting.md explains `%s`, which nothing reports", text)
		}
	}
}

// reportedTexts are what the product says of its state, with the package that says it.
func reportedTexts(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	add := func(dir string, texts []string) {
		for _, text := range texts {
			text = verb.ReplaceAllString(strings.TrimSuffix(text, ": %w"), "…")
			if len(letters.FindAllString(text, -1)) > 3 && !strings.HasPrefix(text, ";") { // what is appended to another
				found[text] = dir
			}
		}
	}
	product := readSources(t, "cells", "resources", "runtime")
	product.calls(func(dir string, p *sourcePackage, in *ast.FuncDecl, call *ast.CallExpr) {
		name := called(call)
		if at, ok := saysAt[name]; ok && at < len(call.Args) {
			add(dir, p.texts(in, call.Args[at]))
		}
		if name == "Errorf" || name == "Sprintf" || name == "New" && len(call.Args) == 1 {
			for _, text := range p.texts(in, call.Args[0]) {
				if sweepReason.MatchString(text) {
					add(dir, []string{text})
				}
			}
		}
	})
	for dir, p := range product {
		for _, value := range p.consts {
			for _, text := range p.texts(nil, value) {
				if reason.MatchString(text) {
					add(dir, []string{text})
				}
			}
		}
	}
	return found
}

// TestReasonsAreConstants keeps reasons from being written where they are used, so that
// each has one spelling.
func TestReasonsAreConstants(t *testing.T) {
	for dir, p := range readSources(t, "cells", "resources") {
		constants := map[*ast.BasicLit]bool{}
		for _, value := range p.consts {
			if lit, ok := value.(*ast.BasicLit); ok {
				constants[lit] = true
			}
		}
		for _, file := range p.files {
			ast.Inspect(file, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && !constants[lit] && reason.MatchString(strings.Trim(lit.Value, "\"`")) {
					t.Errorf("%s: %s is no constant", dir, lit.Value)
				}
				return true
			})
		}
	}
}
