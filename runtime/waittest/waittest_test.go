// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package waittest

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

// passing is a package whose tests pass.
type passing func()

func (p passing) Run() int {
	p()
	return 0
}

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		Until(t, "two minutes are over", func() bool { return time.Since(began) >= 2*time.Minute })
		f := &failing{TB: t}
		func() {
			defer func() { recover() }()
			Until(f, "pigs fly", func() bool { return false })
		}()
		if took := time.Since(began); took < 2*time.Minute+Limit || !strings.Contains(f.text, "pigs fly") {
			t.Errorf("%q after %s", f.text, took)
		}
	})
}

// failing remembers how it failed.
type failing struct {
	testing.TB
	text string
}

func (f *failing) Fatalf(format string, args ...any) {
	f.text = fmt.Sprintf(format, args...)
	panic(f.text)
}

func (f *failing) Error(args ...any) { f.text = fmt.Sprint(args...) }

// What is left for ever is a leak, and what ends by itself is none. A bubble's clock
// knows which after no time.
func TestLeaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := goleak.IgnoreCurrent()
		go time.Sleep(endLimit / 2)
		NoLeaks(t, before)
		stop := make(chan struct{})
		defer close(stop)
		go func() { <-stop }()
		f := &failing{TB: t}
		NoLeaks(f, before)
		if !strings.Contains(f.text, "TestLeaks") {
			t.Errorf("a goroutine that is left for ever: %q", f.text)
		}
	})
}

func TestMainFailsForLeaksAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := goleak.IgnoreCurrent()
		if code := run(passing(func() { go time.Sleep(endLimit / 2) }), before); code != 0 {
			t.Errorf("exit code %d for a goroutine that ends by itself", code)
		}
		stop := make(chan struct{})
		defer close(stop)
		if code := run(passing(func() { go func() { <-stop }() }), before); code != 1 {
			t.Errorf("exit code %d for a goroutine that is left for ever", code)
		}
	})
}
