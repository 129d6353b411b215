// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package leading

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/runtime/waittest"
)

func TestMain(m *testing.M) { waittest.Main(m) }

var configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")

// L9: a write outlasts its caller, but neither for ever, nor the fence, nor the time
// that the caller gave it.
func TestAWriteOutlastsItsCaller(t *testing.T) {
	type key struct{}
	for name, test := range map[string]struct {
		leave func(end context.CancelFunc, fence *Fence)
		limit time.Duration // of the caller
		lasts time.Duration
		cause error
	}{
		"the caller leaves":       {func(end context.CancelFunc, _ *Fence) { end() }, time.Hour, ResponseTime, context.Canceled},
		"the fence shuts":         {func(_ context.CancelFunc, f *Fence) { f.Close() }, time.Hour, 0, ErrFenced},
		"the fence shuts, later":  {func(end context.CancelFunc, f *Fence) { end(); time.AfterFunc(time.Second, f.Close) }, time.Hour, time.Second, ErrFenced},
		"the caller's time is up": {func(context.CancelFunc, *Fence) {}, time.Second, time.Second, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fence := Unfenced()
				defer fence.Close()
				caller, end := context.WithTimeout(context.WithValue(t.Context(), key{}, "kept"), test.limit)
				defer end()
				write, done := DetachForResponse(caller, fence)
				defer done()
				began := time.Now()
				test.leave(end, fence)
				<-write.Done()
				if lasted := time.Since(began); lasted != test.lasts || !errors.Is(context.Cause(write), test.cause) {
					t.Errorf("it lasts %s, not %s; cause: %v", lasted, test.lasts, context.Cause(write))
				}
				if write.Value(key{}) != "kept" {
					t.Error("values are lost")
				}
			})
		})
	}
}

// L9.
func TestEndOfTermWaitsForWritesThatMayYetTakeEffect(t *testing.T) {
	for name, test := range map[string]struct {
		ago    time.Duration // of the last write without an answer; 0: there was none
		fenced time.Duration // after which the fence shuts
		waits  time.Duration
	}{
		"all answered":      {0, time.Hour, 0},
		"one just now":      {time.Nanosecond, time.Hour, drainTime - time.Nanosecond},
		"one some time ago": {2 * time.Second, time.Hour, drainTime - 2*time.Second},
		"one long ago":      {time.Minute, time.Hour, 0},
		"the fence shuts":   {time.Nanosecond, time.Second, time.Second},
		"the fence is shut": {time.Nanosecond, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tracker := NewTracker()
				if test.ago > 0 {
					tracker.MarkUnanswered(Object{Resource: configMaps, Name: "a"})
					time.Sleep(test.ago)
				}
				fence, cancel := context.WithTimeout(t.Context(), test.fenced)
				defer cancel()
				began := time.Now()
				tracker.Drain(fence, slog.New(slog.DiscardHandler), nil)
				if waited := time.Since(began); waited != test.waits {
					t.Errorf("waited for %s, not %s", waited, test.waits)
				}
			})
		})
	}
}

// Creates of which one is refused, and another stored, leave nothing open: none of
// them has a name before it is answered.
func TestCreatesLeaveNothingOpen(t *testing.T) {
	l := NewTracker()
	l.Begin(&WriteProgress{Complete: true})
	ref := Object{Resource: configMaps, Namespace: "n"}
	first, second := l.Sent(ref), l.Sent(ref)
	if w := l.WriteProgress(); w.Complete {
		t.Errorf("while they are under way: %v", w)
	}
	l.Refused(ref, first)
	l.Refused(ref, second)
	if w := l.WriteProgress(); !w.Complete || len(l.pending()) > 0 {
		t.Errorf("after two were refused: %v, open %v", w, l.pending())
	}
	first, second = l.Sent(ref), l.Sent(ref)
	l.Stored(ref, 8)
	l.Refused(ref, second)
	if w := l.WriteProgress(); !w.Complete || w.Revisions["configmaps"] != 8 {
		t.Errorf("after one was stored and one refused: %v (%v)", w, first)
	}
	l.Sent(ref)
	l.MarkUnanswered(ref)
	if w := l.WriteProgress(); w.Complete {
		t.Errorf("after one that nobody knows of: %v", w)
	}
}
