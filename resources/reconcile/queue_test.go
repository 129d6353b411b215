// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reconcile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/waittest"
)

func TestMain(m *testing.M) { waittest.Main(m) }

// rig is a loop's surroundings.
type rig struct {
	scope Deps
	tree  *health.Tree
	log   *bytes.Buffer // read when the loop has stopped
	stop  func()
}

func newRig() *rig {
	r := &rig{tree: health.NewTree(), log: &bytes.Buffer{}}
	r.scope = Deps{
		Module: cell.ModuleInfo{ID: "ipam.test"}, Health: r.tree.Reporter("ipam.test"),
		Log: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	return r
}

// run runs a loop until stop, which waits for its end.
func (r *rig) run(t *testing.T, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	}()
	r.stop = func() {
		cancel()
		<-done
	}
}

func (r *rig) degraded() (ids []string) {
	for _, s := range r.tree.Degraded() {
		ids = append(ids, s.ID+": "+s.Message)
	}
	return ids
}

// requeues notes when keys are looked at.
type looks struct {
	mu    sync.Mutex
	began time.Time
	at    map[string][]time.Duration
}

func newLooks() *looks { return &looks{began: time.Now(), at: map[string][]time.Duration{}} }

func (l *looks) note(key string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at[key] = append(l.at[key], time.Since(l.began))
	return len(l.at[key])
}

func TestAKeyIsLookedAtByOneWorkerAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		inside, total := map[string]int{}, 0
		r := newRig()
		l := NewQueue(r.scope, "check", func(_ context.Context, key string) error {
			mu.Lock()
			if inside[key]++; inside[key] > 1 {
				t.Errorf("%s is with two workers", key)
			}
			total++
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			inside[key]--
			mu.Unlock()
			return nil
		}, Workers(8))
		r.run(t, l.Run)
		for range 10 { // all but the first while a worker has the keys
			for k := range 4 {
				l.Add(fmt.Sprint("key", k))
			}
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		r.stop()
		if total != 8 {
			t.Errorf("%d looks, want two per key: the changes while a worker had it are one more look", total)
		}
	})
}

func TestAsManyWorkersAsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		seen := newLooks()
		r := newRig()
		l := NewQueue(r.scope, "check", func(_ context.Context, key string) error { seen.note(key); <-release; return nil }, Workers(3))
		for k := range 5 {
			l.Add(fmt.Sprint(k))
		}
		r.run(t, l.Run)
		synctest.Wait()
		if n := len(seen.at); n != 3 {
			t.Errorf("%d keys are looked at at once, want 3", n)
		}
		close(release)
		synctest.Wait()
		if n := len(seen.at); n != 5 {
			t.Errorf("%d keys were looked at, want 5", n)
		}
		r.stop()
	})
}

func TestPausesGrowForWhatFailsWhileOthersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := newLooks()
		r := newRig()
		l := NewQueue(r.scope, "check", func(_ context.Context, key string) error {
			if n := seen.note(key); key == "bad" && n < 6 {
				return errors.New("no")
			}
			return nil
		}, Workers(1), Backoff(time.Second, 4*time.Second))
		r.run(t, l.Run)
		l.Add("bad")
		time.Sleep(500 * time.Millisecond)
		l.Add("good")
		time.Sleep(time.Minute)
		l.Add("bad") // has succeeded: its next failures start anew
		time.Sleep(time.Second)
		r.stop()
		s := time.Second
		want := map[string][]time.Duration{
			"bad":  {0, s, 3 * s, 7 * s, 11 * s, 15 * s, 60*s + 500*time.Millisecond},
			"good": {500 * time.Millisecond},
		}
		if diff := cmp.Diff(want, seen.at); diff != "" {
			t.Error(diff)
		}
	})
}

func TestSuccessForgetsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := newLooks()
		r := newRig()
		l := NewQueue(r.scope, "check", func(_ context.Context, key string) error {
			if n := seen.note(key); n == 3 || n == 6 {
				return nil
			}
			return errors.New("no")
		}, Backoff(time.Second, time.Hour))
		r.run(t, l.Run)
		l.Add("k")
		time.Sleep(10 * time.Second)
		l.Add("k")
		time.Sleep(10 * time.Second)
		r.stop()
		s := time.Second
		if diff := cmp.Diff([]time.Duration{0, s, 3 * s, 10 * s, 11 * s, 13 * s}, seen.at["k"]); diff != "" {
			t.Error(diff)
		}
		if strings.Count(r.log.String(), "level=WARN") != 2 || strings.Count(r.log.String(), "level=DEBUG") != 2 {
			t.Errorf("want one warning for each row of failures, and the rest at debug:\n%s", r.log)
		}
	})
}

// What happens to a key does not cut its pause short, and is not lost.
func TestPatientLoopsWaitOutTheirPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := newLooks()
		r := newRig()
		var l *Queue[string]
		l = NewQueue(r.scope, "check", func(_ context.Context, key string) error {
			switch seen.note(key) {
			case 1, 2:
				return errors.New("no")
			case 3:
				l.Add(key) // while it is looked at, and succeeds
			}
			return nil
		}, Backoff(4*time.Second, time.Hour), HonorBackoff())
		r.run(t, l.Run)
		l.Add("k")
		for range 12 { // the last one comes after it has succeeded
			time.Sleep(time.Second + time.Millisecond)
			l.Add("k")
		}
		time.Sleep(time.Minute)
		r.stop()
		s := time.Second
		if diff := cmp.Diff([]time.Duration{0, 4 * s, 12 * s, 12 * s, 12*s + 12*time.Millisecond}, seen.at["k"]); diff != "" {
			t.Error(diff)
		}
	})
}

func TestAfterLooksAgainAndIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := newLooks()
		r := newRig()
		l := NewQueue(r.scope, "check", func(_ context.Context, key string) error {
			switch seen.note(key) {
			case 1:
				return errors.New("no")
			case 2, 3:
				return fmt.Errorf("waiting: %w", RequeueAfter(10*time.Second))
			}
			return nil
		}, Backoff(time.Second, time.Hour))
		r.run(t, l.Run)
		l.Add("k")
		synctest.Wait()
		if len(r.degraded()) != 1 {
			t.Errorf("after a failure: %v", r.degraded())
		}
		time.Sleep(2 * time.Second)
		if len(r.degraded()) != 0 {
			t.Errorf("while it waits: %v", r.degraded())
		}
		time.Sleep(time.Minute)
		r.stop()
		s := time.Second
		if diff := cmp.Diff([]time.Duration{0, s, 11 * s, 21 * s}, seen.at["k"]); diff != "" {
			t.Error(diff)
		}
	})
}

func TestEachWriteCarriesItsRuleAndTriggers(t *testing.T) {
	trigger := func(version int) k8s.Trigger {
		return k8s.Trigger{Kind: "Node", Name: "n", ResourceVersion: fmt.Sprint(version)}
	}
	synctest.Test(t, func(t *testing.T) {
		var causes []string
		r := newRig()
		l := NewQueue(r.scope, "allocate", func(ctx context.Context, _ string) error {
			causes = append(causes, k8s.CauseOf(ctx).String())
			time.Sleep(10 * time.Millisecond)
			if len(causes) == 2 {
				return errors.New("no")
			}
			return nil
		}, Workers(1), Backoff(time.Second, time.Hour))
		l.Add("n", trigger(1)) // before the loop runs
		l.Add("n", trigger(2))
		r.run(t, l.Run)
		time.Sleep(time.Second)
		l.Add("n", trigger(3))
		time.Sleep(5 * time.Millisecond)
		l.Add("n", trigger(4)) // while a worker has it, and fails
		time.Sleep(time.Minute)
		for v := range 20 { // more than it remembers
			l.Add("n", trigger(v))
		}
		time.Sleep(time.Minute)
		r.stop()
		want := []string{
			"ipam.test allocate, set off by Node n at 1, Node n at 2",
			"ipam.test allocate, set off by Node n at 3",
			"ipam.test allocate, set off by Node n at 3, Node n at 4",
		}
		if diff := cmp.Diff(want, causes[:3]); diff != "" {
			t.Error(diff)
		}
		final := causes[len(causes)-1]
		if strings.Count(final, "Node") > maxTriggers || !strings.HasSuffix(final, "Node n at 19") {
			t.Errorf("of many triggers it remembers %q, want the last %d", final, maxTriggers)
		}
	})
}

// The leak check of TestMain sees the goroutines of a queue.
func TestALoopThatNeverRunsCostsNothing(t *testing.T) {
	l := NewQueue(newRig().scope, "check", func(context.Context, string) error { return nil })
	l.Add("k")
}

func TestNothingIsLookedAtAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := newLooks()
		ended := false
		r := newRig()
		l := NewQueue(r.scope, "check", func(ctx context.Context, key string) error {
			seen.note(key)
			<-ctx.Done()
			time.Sleep(time.Second)
			ended = true
			return ctx.Err()
		}, Workers(1))
		r.run(t, l.Run)
		l.Add("a")
		l.Add("b")
		synctest.Wait()
		r.stop()
		if !ended {
			t.Error("Run returned before its worker")
		}
		l.Add("c")
		synctest.Wait()
		if len(seen.at) != 1 || len(r.degraded()) != 0 {
			t.Errorf("looks: %v, degraded: %v", seen.at, r.degraded())
		}
	})
}

func TestHealthCountsWhatFailsInEachLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		broken := true
		do := func(context.Context, string) error {
			mu.Lock()
			defer mu.Unlock()
			if broken {
				return errors.New("no")
			}
			return nil
		}
		r := newRig()
		failing := NewQueue(r.scope, "write status", do, Backoff(time.Second, time.Second), Workers(1))
		fine := NewQueue(r.scope, "read", func(_ context.Context, key string) error { return nil })
		failing.Add("a")
		failing.Add("b")
		r.run(t, failing.Run)
		stopFirst := r.stop
		r.run(t, fine.Run)
		defer func() { stopFirst(); r.stop() }()
		fine.Add("x")
		synctest.Wait()
		got := r.degraded()
		if len(got) != 1 || !strings.HasPrefix(got[0], "ipam.test.loop-write-status: 2 failing") {
			t.Errorf("degraded: %v", got)
		}
		mu.Lock()
		broken = false
		mu.Unlock()
		time.Sleep(2 * time.Second)
		if got := r.degraded(); len(got) != 0 {
			t.Errorf("degraded after all succeeded: %v", got)
		}
		if !slices.ContainsFunc(r.tree.Snapshot(), func(s health.Status) bool { return s.Level == health.OK }) {
			t.Error("nothing is OK")
		}
	})
}
