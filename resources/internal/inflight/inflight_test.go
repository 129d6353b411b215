// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package inflight

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/waittest"
)

func TestMain(m *testing.M) { waittest.Main(m) }

func TestAttemptsThatTakeLongAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := health.NewTree()
		tracker := New(tree.Reporter("duty.loop"), slog.New(slog.DiscardHandler), "duty loop")
		shown := func() string {
			synctest.Wait()
			var texts []string
			for _, s := range tree.Degraded() {
				texts = append(texts, s.ID+": "+s.Message)
			}
			return strings.Join(texts, "\n")
		}
		for range 100 { // short ones, one after the other
			end := tracker.Begin("short")
			time.Sleep(time.Second)
			end()
		}
		if got := shown(); got != "" {
			t.Errorf("short attempts are reported: %s", got)
		}
		first := tracker.Begin("a")
		time.Sleep(3 * time.Second)
		second := tracker.Begin("b")
		time.Sleep(limit)
		if got := shown(); !strings.HasPrefix(got, "duty.loop.attempts: 1 attempts take long, the oldest for a since ") {
			t.Errorf("reported: %q", got)
		}
		time.Sleep(limit)
		if got := shown(); !strings.Contains(got, ": 2 attempts take long, the oldest for a since ") {
			t.Errorf("reported: %q", got)
		}
		first()
		if got := shown(); !strings.Contains(got, ": 1 attempts take long, the oldest for b ") {
			t.Errorf("after one has ended: %q", got)
		}
		second()
		if got := shown(); got != "" {
			t.Errorf("after all have ended: %q", got)
		}
		time.Sleep(time.Hour)
	})
}
