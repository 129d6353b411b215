// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package house_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestTests checks how tests wait. Tests in a bubble of synctest have a clock of their own.
func TestTests(t *testing.T) {
	limits := regexp.MustCompile(`deadline := .*\.Add\(`)
	asleep, limited, ports := map[string]string{}, map[string]string{}, map[string]string{}
	for _, s := range allSources(t) {
		if !s.isTest() {
			continue
		}
		inBubble := strings.Contains(s.text, `"testing/synctest"`)
		for i, line := range strings.Split(s.text, "\n") {
			switch said := strings.Contains(line, "//"); {
			case said || inBubble:
			case strings.Contains(line, "time.Sleep("):
				asleep[fmt.Sprintf("%s:%d", s.path, i+1)] = "sleeps"
			case strings.Contains(line, "deadline := ") && limits.MatchString(line) && !strings.Contains(line, "waittest.Limit"):
				limited[fmt.Sprintf("%s:%d", s.path, i+1)] = "has a limit of its own"
			}
		}
		for name := range portsThatWereFree(t, s) {
			ports[s.path+" "+name] = "returns a port that was free a moment ago"
		}
	}
	t.Run("a sleep says what it is for", func(t *testing.T) {
		exceptions{}.check(t, "wait for a state with waittest.Until, or say in a comment on the line what passes meanwhile", asleep)
	})
	t.Run("a wait has the one limit", func(t *testing.T) {
		exceptions{}.check(t, "use waittest.Until, or say in a comment on the line what the limit judges", limited)
	})
	t.Run("a port is bound, or locked", func(t *testing.T) {
		exceptions{}.check(t, "bind port 0 in the program under test, or use clustertest.FreePorts", ports)
	})
}

// TestBenchmarksRun checks that each benchmark is run once by a test of its package.
func TestBenchmarksRun(t *testing.T) {
	benchmark, argument := regexp.MustCompile(`(?m)^func (Benchmark\w+)`), regexp.MustCompile(`\bBenchmark\w+`)
	once := regexp.MustCompile(`\bOnce\(t(?:, \w+)+\)`)
	idle, run := map[string]string{}, map[string]bool{}
	for _, s := range allSources(t) {
		if !s.isTest() {
			continue
		}
		for _, call := range once.FindAllString(s.text, -1) {
			for _, name := range argument.FindAllString(call, -1) {
				run[path.Dir(s.path)+" "+name] = true
			}
		}
	}
	for _, s := range allSources(t) {
		for _, found := range benchmark.FindAllStringSubmatch(s.text, -1) {
			if id := path.Dir(s.path) + " " + found[1]; s.isTest() && !run[id] {
				idle[id] = "is run by no test"
			}
		}
	}
	exceptions{}.check(t, "add it to TestBenchmarks of its package", idle)
}

// portsThatWereFree are functions that listen, close the listener, and return its address.
func portsThatWereFree(t *testing.T, s source) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	if !strings.Contains(s.text, "net.Listen(") {
		return found
	}
	f, err := parser.ParseFile(fileSet, s.path, s.text, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range f.Decls {
		listens, closes, returns := slices.Contains(calls(d), "net.Listen"), false, false
		ast.Inspect(d, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncLit: // runs at another time
				return false
			case *ast.DeferStmt:
				sel, ok := n.Call.Fun.(*ast.SelectorExpr)
				closes = closes || ok && sel.Sel.Name == "Close"
			case *ast.ReturnStmt:
				ast.Inspect(n, func(n ast.Node) bool {
					sel, ok := n.(*ast.SelectorExpr)
					returns = returns || ok && sel.Sel.Name == "Addr"
					return true
				})
			}
			return true
		})
		if listens && closes && returns {
			found[declName(d)] = true
		}
	}
	return found
}
