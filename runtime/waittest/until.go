// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package waittest

import (
	"testing"
	"time"
)

// Limit is how long a state may take to come.
const Limit = 3 * time.Minute

// poll is the pause between two looks at a state.
const poll = 10 * time.Millisecond

// Until returns when something holds. It fails the test if that does not come; what is
// the state, in the words of the failure. It belongs to the test's goroutine, as does
// tb.FailNow.
func Until(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(Limit); !holds(); time.Sleep(poll) {
		if time.Now().After(deadline) {
			tb.Fatalf("not within %s: %s", Limit, what)
		}
	}
}
