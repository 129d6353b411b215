// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package waittest

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestMeterLeavesStallsOut(t *testing.T) {
	start := time.Now()
	m := &Meter{last: start}
	for _, at := range []time.Duration{10, 20, 65, 60, 70, 3070, 3080} {
		m.advance(start.Add(at * time.Millisecond))
	}
	if m.elapsed != 90*time.Millisecond || m.Stalled() != 2990*time.Millisecond {
		t.Errorf("elapsed %s, stalled %s", m.elapsed, m.Stalled())
	}
}

func TestMeterTicksByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := StartMeter()
		defer m.Stop()
		time.Sleep(time.Minute) // of the bubble's clock
		if m.Elapsed() != time.Minute || m.Stalled() != 0 {
			t.Errorf("after a minute: elapsed %s, stalled %s", m.Elapsed(), m.Stalled())
		}
		m.Restart()
		time.Sleep(time.Second) // of the bubble's clock
		if m.Elapsed() != time.Second {
			t.Errorf("a second after the restart: elapsed %s", m.Elapsed())
		}
	})
}
