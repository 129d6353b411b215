// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package waittest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// endLimit is how long goroutines may take to end by themselves when what they served
// is closed, as the readers of connections do. goleak alone judges after 0.43 s.
const endLimit = time.Minute

// Runner runs the tests of a package: a *testing.M, or what stands around one.
type Runner interface {
	Run() (exitCode int)
}

// Main runs the tests of a package, and fails if they leave goroutines:
//
//	func TestMain(m *testing.M) { waittest.Main(m) }
//
// It ends the process.
func Main(m Runner) { os.Exit(run(m)) }

func run(m Runner, except ...goleak.Option) (exitCode int) {
	if code := m.Run(); code != 0 {
		return code
	}
	if err := leaks(except...); err != nil {
		fmt.Fprintln(os.Stderr, "waittest: the tests have passed and leave goroutines:", err)
		return 1
	}
	return 0
}

// NoLeaks fails a test that leaves goroutines which the options do not except:
//
//	defer waittest.NoLeaks(t, goleak.IgnoreCurrent())
func NoLeaks(tb testing.TB, except ...goleak.Option) {
	tb.Helper()
	if err := leaks(except...); err != nil {
		tb.Error(err)
	}
}

// leaks returns which goroutines are left after endLimit.
func leaks(except ...goleak.Option) error {
	for deadline := time.Now().Add(endLimit); ; { // of goroutines that end by themselves
		err := goleak.Find(except...)
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
