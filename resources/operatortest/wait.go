// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package operatortest

import (
	"testing"
	"time"

	"github.com/skep-operator/skep/runtime/seedtest"
	"github.com/skep-operator/skep/runtime/waittest"
)

// Eventually waits until a condition holds. The test fails if that takes longer than waittest.Limit.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	waittest.Until(t, what, holds)
}

// soon is how long others may wait for changes beside the largest objects: docs/wire has 2 s (ENV-30, GW-54), and a busy machine twice that.
const soon = 4 * time.Second

// Soon logs how long something took that has begun, and fails if others had to wait too long for it. Under the race detector it logs alone.
func Soon(t testing.TB, what string, began time.Time) {
	t.Helper()
	took := time.Since(began).Round(time.Millisecond)
	if t.Logf("%s after %s", what, took); took > soon && !seedtest.RaceEnabled {
		t.Errorf("%s after %s, more than %s", what, took, soon)
	}
}

// EventuallyWithin is Eventually with another limit.
func EventuallyWithin(t testing.TB, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	waittest.Within(t, limit, what, holds)
}
