// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stacks_test

import (
	"context"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"testing"

	"github.com/skep-operator/skep/runtime/internal/stacks"
	"github.com/skep-operator/skep/runtime/waittest"
)

func TestMain(m *testing.M) { waittest.Main(m) }

const base = "github.com/skep-operator/skep/runtime/internal/stacks_test.guard"

// guard stands for the code that calls what may hang.
func guard(do func()) { do() }

func waitForever(entered, release chan struct{}) {
	close(entered)
	<-release
}

func TestHangingNamesTheGoroutineThatHangs(t *testing.T) {
	entered, release, child := make(chan struct{}), make(chan struct{}), make(chan struct{})
	defer func() { <-child }()
	defer close(release)
	go pprof.Do(context.Background(), pprof.Labels("hook", "a start", "module", "m"), func(context.Context) {
		guard(func() {
			go func() { <-release; close(child) }() // has the label, too
			waitForever(entered, release)
		})
	})
	<-entered
	var got string
	for !strings.Contains(got, "waitForever") { // it is between closing and receiving
		got = stacks.Hanging(base, "hook", "a start", "module", "m")
	}
	if !strings.Contains(got, "stacks_test.waitForever (runtime/internal/stacks_test/stacks_test.go:") {
		t.Error(got)
	}
	if strings.Contains(got, "guard") || strings.Contains(got, "pprof") || strings.Contains(got, "0x") {
		t.Error("more than people need:\n", got)
	}
	if got := stacks.Hanging(base, "hook", "a stop"); !strings.Contains(got, "unknown") {
		t.Error("another label:", got)
	}
	if got := stacks.Hanging(base+"Other", "hook", "a start"); !strings.Contains(got, "unknown") {
		t.Error("another function:", got)
	}
}

func stackOf(do func()) (stack []byte) {
	defer func() {
		if recover() != nil {
			stack = debug.Stack()
		}
	}()
	do()
	return nil
}

type list struct{ next *list }

func follow(l *list) *list { return l.next.next }

func TestPanicked(t *testing.T) {
	for name, do := range map[string]func(){
		"panic":           func() { panic("why") },
		"nil dereference": func() { follow(&list{}) },
		"out of range":    func() { _ = []int{}[len(name())] },
		"deep":            func() { _ = strings.Repeat("x", -1) },
	} {
		got := stacks.Panicked(stackOf(do))
		want := "runtime/internal/stacks_test/stacks_test.go:"
		if name == "deep" {
			want = "strings/strings.go:"
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := stacks.Panicked(nil); got != "unknown place" {
		t.Error(got)
	}
}

func name() string { return "x" }
