// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package leading

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// twoHands is a clock whose hands are turned one by one.
type twoHands struct {
	mu        sync.Mutex
	monotonic time.Duration
	wall      time.Time
}

func newTwoHands() *twoHands { return &twoHands{monotonic: time.Hour, wall: time.Unix(1e9, 0)} }

func (h *twoHands) clock() Clock {
	return Clock{
		Monotonic: func() time.Duration { h.mu.Lock(); defer h.mu.Unlock(); return h.monotonic },
		Wall:      func() time.Time { h.mu.Lock(); defer h.mu.Unlock(); return h.wall },
	}
}

func (h *twoHands) turn(monotonic, wall time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.monotonic += monotonic
	h.wall = h.wall.Add(wall)
}

func TestFenceShutsOnEitherClock(t *testing.T) {
	for name, c := range map[string]struct {
		monotonic, wall time.Duration
		shut            bool
	}{
		"before the deadline":              {9 * time.Second, 9 * time.Second, false},
		"both at the deadline":             {10 * time.Second, 10 * time.Second, true},
		"the machine slept: wall only":     {time.Second, time.Hour, true},
		"the wall was set back: monotonic": {10 * time.Second, -time.Hour, true},
		"the wall was set back a little":   {9 * time.Second, -time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			hands := newTwoHands()
			f := NewFence(hands.clock(), hands.clock().Now(), 10*time.Second)
			defer f.Close()
			hands.turn(c.monotonic, c.wall)
			if err := f.Check(); (err != nil) != c.shut {
				t.Errorf("Check: %v, want shut %v", err, c.shut)
			}
			if f.Extend(hands.clock().Now(), 10*time.Second) == c.shut {
				t.Errorf("Extend must fail exactly where the fence is shut")
			}
		})
	}
}

func TestFenceIsCountedFromBeforeTheRenewal(t *testing.T) {
	hands := newTwoHands()
	asked := hands.clock().Now()
	hands.turn(8*time.Second, 8*time.Second) // the answer took its time
	f := NewFence(hands.clock(), asked, 10*time.Second)
	defer f.Close()
	hands.turn(2*time.Second, 2*time.Second)
	if f.Check() == nil {
		t.Error("the fence is open 10 s after the renewal was asked for")
	}
}

func TestFenceTimerEndsContextAndConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFence(SystemClock, SystemClock.Now(), 10*time.Second)
		closed := make(chan struct{})
		f.OnClose(func() { close(closed) })
		time.Sleep(9 * time.Second)
		if !f.Extend(SystemClock.Now(), 10*time.Second) {
			t.Fatal("cannot extend an open fence")
		}
		time.Sleep(9 * time.Second)
		if f.Context().Err() != nil {
			t.Fatal("the first deadline counted although it was moved")
		}
		time.Sleep(1001 * time.Millisecond)
		<-closed
		if !errors.Is(context.Cause(f.Context()), ErrFenced) {
			t.Errorf("cause of the context's end: %v", context.Cause(f.Context()))
		}
	})
}

func TestUnfencedIsOpenUntilClosed(t *testing.T) {
	f := Unfenced()
	if f.Check() != nil || !f.Extend(SystemClock.Now(), time.Second) {
		t.Error("shut")
	}
	f.Close()
	f.Close()
	if f.Extend(SystemClock.Now(), time.Second) {
		t.Error("extended after Close")
	}
	if f.Check() == nil {
		t.Error("open after Close")
	}
	called := false
	f.OnClose(func() { called = true })
	if !called {
		t.Error("OnClose after Close must call at once")
	}
}
