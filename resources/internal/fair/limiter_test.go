// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package fair

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skep-operator/skep/runtime/waittest"
)

func TestMain(m *testing.M) { waittest.Main(m) }

var errGivenUp = errors.New("given up")

// crowd makes requests of several modules and records the order of admission.
type crowd struct {
	t *testing.T
	l *Limiter
	sync.WaitGroup

	mu    sync.Mutex
	order []string
}

// ask returns when the request went or is in the queue.
func (c *crowd) ask(module string) {
	c.Go(func() {
		release, err := c.l.Acquire(c.t.Context(), module)
		if err != nil {
			c.t.Error(err)
			return
		}
		c.mu.Lock()
		c.order = append(c.order, module)
		c.mu.Unlock()
		release()
	})
	synctest.Wait()
}

func TestModulesGoInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{t: t, l: New(Limits{Rate: 10, Burst: 1})}
		for range 50 {
			c.ask("greedy")
		}
		c.ask("modest")
		if n := c.l.Waiting(); n != 50 {
			t.Errorf("%d wait", n)
		}
		c.Wait()
		if i := slices.Index(c.order, "modest"); i < 0 || i > 4 {
			t.Errorf("the modest module came %dth, behind the greedy one's queue", i+1)
		}
	})
}

// docs/wire/kvstore.md, KV-O2.
func TestOneRequestOfEachModuleInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{t: t, l: New(Limits{Rate: 1, AtOnce: 1})}
		for range 5 {
			c.ask("many")
		}
		c.ask("one")
		ctx, cancel := context.WithCancel(t.Context())
		c.Go(func() {
			if _, err := c.l.Acquire(ctx, "gone"); err == nil {
				t.Error("one that left was served")
			}
		})
		synctest.Wait()
		cancel()
		began := time.Now()
		c.Wait()
		if want := []string{"many", "many", "one", "many", "many", "many"}; !slices.Equal(c.order, want) {
			t.Errorf("served %v, want %v", c.order, want)
		}
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("6 requests at 1/s took %s", took)
		}
	})
}

func TestTheRateIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Limits{Rate: 100, Burst: 20})
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

// docs/wire/kvstore.md, KV-O2: no more than so many requests are under way at
// once, also when a wait is aborted.
func TestSlots(t *testing.T) {
	for name, limits := range map[string]Limits{"with a rate": {Rate: 1000, Burst: 1000, AtOnce: 2}, "alone": {AtOnce: 2}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := New(limits)
				var mu sync.Mutex
				running, most := 0, 0
				var all sync.WaitGroup
				for i := range 50 {
					all.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*10*time.Millisecond)
						defer cancel()
						release, err := l.Acquire(ctx, string(rune('a'+i%5)))
						if err != nil {
							return
						}
						mu.Lock()
						running++
						most = max(most, running)
						mu.Unlock()
						time.Sleep(25 * time.Millisecond)
						mu.Lock()
						running--
						mu.Unlock()
						release()
					})
				}
				all.Wait()
				if most != 2 || l.free != 2 || len(l.turn) != 0 || len(l.queues) != 0 {
					t.Errorf("at most %d at once; afterwards %d slots are free and %d modules wait", most, l.free, len(l.turn))
				}
			})
		})
	}
}

func TestWhoLeftIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		heldUp := map[string]int{}
		l := New(Limits{Rate: 1, HeldUp: func(module string, _ time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			heldUp[module]++
		}})
		_ = l.Wait(t.Context(), "first")
		ctx, cancel := context.WithCancelCause(t.Context())
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if err := l.Wait(ctx, "impatient"); !errors.Is(err, errGivenUp) {
					t.Errorf("left with %v, want the cause", err)
				}
			})
			synctest.Wait()
		}
		cancel(errGivenUp)
		all.Wait()
		began := time.Now()
		if err := l.Wait(t.Context(), "patient"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("waited %s behind requests that were given up", took)
		}
		if heldUp["impatient"] != 10 || heldUp["patient"] != 1 || heldUp["first"] != 0 {
			t.Errorf("delayed requests: %v", heldUp)
		}
	})
}

// A test bubble fails when a goroutine is left that nothing will wake.
func TestNothingIsDoneForThoseWhoLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Limits{Rate: 0.001})
		began := time.Now()
		_ = l.Wait(t.Context(), "first")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Wait(ctx, "impatient"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("left with %v", err)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("that took %s", took)
		}
		if len(l.queues) > 0 || len(l.turn) > 0 || l.Waiting() != 0 {
			t.Error("the limiter still has a timer without waiters")
		}
		if err := l.Wait(t.Context(), "late"); err != nil || time.Since(began) != 1000*time.Second {
			t.Errorf("%v, and the next token came after %s: one that left took it", err, time.Since(began))
		}
	})
}

// One that is let go in the moment in which it leaves gives its slot back.
func TestASlotThatNobodyWantsAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Limits{AtOnce: 1})
		release, err := l.Acquire(t.Context(), "first")
		if err != nil {
			t.Fatal(err)
		}
		ready := l.ask("leaving")
		release()
		<-ready
		l.leave("leaving", ready)
		if _, err := l.Acquire(t.Context(), "next"); err != nil || l.free != 0 {
			t.Errorf("%v, %d slots are free", err, l.free)
		}
	})
}

func TestNoLimit(t *testing.T) {
	l := New(Limits{HeldUp: func(string, time.Duration) { t.Error("held up") }})
	for range 1000 {
		if err := l.Wait(t.Context(), "any"); err != nil {
			t.Fatal(err)
		}
	}
}

func BenchmarkNobodyWaits(b *testing.B) {
	l := New(Limits{Rate: 1e12, Burst: 1e9, AtOnce: 10})
	b.ReportAllocs()
	for b.Loop() {
		release, err := l.Acquire(b.Context(), "m")
		if err != nil {
			b.Fatal(err)
		}
		release()
	}
}
