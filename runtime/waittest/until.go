// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package waittest

import (
	"testing"
	"time"
)

// Limit is how long a state may take to come.
const Limit = 3 * time.Minute

// Until returns when something holds. It fails the test if that does not come; what is
// the state, in the words of the failure. It belongs to the test's goroutine, as does
// tb.FailNow.
func Until(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	Within(tb, Limit, what, holds)
}

// Within is Until with another limit. The state is looked at less and less often, and for no
// more than half of the time: what a look costs, such as a list of all objects, does not
// delay what is waited for.
func Within(tb testing.TB, limit time.Duration, what string, holds func() bool) {
	tb.Helper()
	for began := time.Now(); ; {
		look := time.Now()
		if holds() {
			return
		}
		waited, took := time.Since(began), time.Since(look)
		if waited > limit {
			tb.Fatalf("not within %s: %s", limit, what)
		}
		time.Sleep(max(min(waited/10, 250*time.Millisecond), min(took, time.Second), 5*time.Millisecond)) // between two looks
	}
}
