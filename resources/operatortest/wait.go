// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package operatortest

import (
	"testing"
	"time"

	"github.com/skep-operator/skep/runtime/waittest"
)

// Eventually waits until a condition holds. The test fails if that takes longer than waittest.Limit.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	waittest.Until(t, what, holds)
}

// EventuallyWithin is Eventually with another limit.
func EventuallyWithin(t testing.TB, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	waittest.Within(t, limit, what, holds)
}
