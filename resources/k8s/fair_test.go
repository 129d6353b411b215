// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func isReset(err error) bool { return errors.Is(err, syscall.ECONNRESET) }

func noWait(string, time.Duration) {}

func TestFairLimiterSharesInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFairLimiter(10, 1, noWait)
		var mu sync.Mutex
		var order []string
		var all sync.WaitGroup
		ask := func(module string) {
			all.Go(func() {
				if err := l.Wait(t.Context(), module); err != nil {
					t.Error(err)
				}
				mu.Lock()
				order = append(order, module)
				mu.Unlock()
			})
			synctest.Wait()
		}
		for range 50 {
			ask("greedy")
		}
		ask("modest")
		all.Wait()
		for i, m := range order {
			if m == "modest" {
				if i > 4 {
					t.Errorf("the modest module came %dth, behind the greedy one's queue", i+1)
				}
				return
			}
		}
		t.Error("the modest module never came")
	})
}

func TestFairLimiterKeepsTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFairLimiter(100, 20, noWait)
		began := time.Now()
		var all sync.WaitGroup
		for i := range 220 {
			all.Go(func() { _ = l.Wait(t.Context(), string(rune('a'+i%5))) })
		}
		all.Wait()
		if took := time.Since(began); took < 1990*time.Millisecond || took > 2020*time.Millisecond {
			t.Errorf("220 requests took %s, want 2s: 20 at once and 100 a second", took)
		}
	})
}

func TestFairLimiterForgetsWhoLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		waited := map[string]int{}
		l := newFairLimiter(1, 1, func(m string, _ time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			waited[m]++
		})
		_ = l.Wait(t.Context(), "first")
		ctx, cancel := context.WithCancelCause(t.Context())
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if err := l.Wait(ctx, "impatient"); !errors.Is(err, ErrFenced) {
					t.Errorf("left with %v, want the cause", err)
				}
			})
			synctest.Wait()
		}
		cancel(ErrFenced)
		all.Wait()
		began := time.Now()
		if err := l.Wait(t.Context(), "patient"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("waited %s behind requests that were given up", took)
		}
		if waited["impatient"] != 10 || waited["first"] != 0 {
			t.Errorf("waits recorded: %v", waited)
		}
	})
}

// A test bubble fails when a goroutine is left that nothing will wake.
func TestFairLimiterStopsWhenAllHaveLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFairLimiter(0.001, 1, noWait)
		_ = l.Wait(t.Context(), "first")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := l.Wait(ctx, "impatient"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("left with %v", err)
		}
		synctest.Wait()
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.pumping || len(l.queues) > 0 {
			t.Error("the limiter still works for nobody")
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("that took %s", took)
		}
	})
}

func TestNoLimit(t *testing.T) {
	l := newFairLimiter(0, 0, noWait)
	for range 1000 {
		if err := l.Wait(t.Context(), "any"); err != nil {
			t.Fatal(err)
		}
	}
}
