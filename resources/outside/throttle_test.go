// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package outside

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// The pause doubles while calls are refused, once for all that were under way, and is short again after one that was not.
func TestThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var of Throttle
		refused := errors.New("refused")
		pause := func() time.Duration {
			err := new(throttled)
			if !errors.As(of.Refused(refused), &err) || !errors.Is(err, refused) {
				t.Fatalf("%v", err)
			}
			return err.pause
		}
		for _, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
			if got := pause(); got != want*time.Second {
				t.Errorf("a pause of %s, want %s", got, want*time.Second)
			}
			time.Sleep(time.Second / 2) // on the clock of the bubble
			if got := pause(); got != want*time.Second-time.Second/2 {
				t.Errorf("a call that was under way has a pause of %s", got)
			}
			time.Sleep(want * time.Second)
		}
		of.Passed()
		if got := pause(); got != time.Second {
			t.Errorf("a pause of %s after a call that was not refused", got)
		}
	})
}
