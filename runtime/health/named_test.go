// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health_test

import (
	"testing"

	"github.com/skep-operator/skep/runtime/health"
)

// A part with problems of several names shows the first of them, and is good without any.
func TestNamed(t *testing.T) {
	tree := health.NewTree()
	n := health.NewNamed("Node", tree.Reporter("duty").Child("nodes"))
	check := func(want string) {
		t.Helper()
		got := ""
		for _, d := range tree.Degraded() {
			got += d.Message
		}
		if got != want || n.Any() != (want != "") {
			t.Errorf("%q, want %q; any: %t", got, want, n.Any())
		}
	}
	if n.Set("a", "") {
		t.Error("no problem is news")
	}
	check("")
	if !n.Set("b", "odd") || n.Set("b", "odd") || !n.Set("a", "even") {
		t.Error("a problem is news once")
	}
	check("Node a: even; and 1 more")
	n.Set("a", "")
	check("Node b: odd")
	n.Clear()
	check("")
}
