// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package job_test

import (
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
	"github.com/skep-operator/skep/runtime/waittest"
)

func TestMain(m *testing.M) { waittest.Main(m) }

var errBroken = errors.New("broken")

// bench is a group and what it tells its surroundings.
type bench struct {
	*job.Runner
	health *health.Tree

	mu       sync.Mutex
	first    []string // failures that begin a row
	ran      []string
	panicked []string
}

func newBench() *bench {
	b := &bench{health: health.NewTree()}
	b.Runner = job.NewGroup("m", b.health.Reporter("m"), job.Hooks{
		Ran: func(r job.Run) {
			b.note(&b.ran, fmt.Sprintf("%s %s %s %v", r.Kind, r.Job, r.Took, r.Err))
		},
		Failed: func(name, action string, repeated bool, err error) {
			if !repeated {
				b.note(&b.first, fmt.Sprintf("%s %s: %v", name, action, err))
			}
		},
		Panicked: func(name string, value any, stack []byte) {
			b.note(&b.panicked, fmt.Sprintf("%s %v %v", name, value, strings.Contains(string(stack), "job_test")))
		},
	})
	return b
}

func (b *bench) note(list *[]string, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*list = append(*list, text)
}

func (b *bench) warnings() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.first)
}

// pass lets time pass in a bubble, and what is due happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// status is "level message: error" of a job, or "" where there is none.
func (b *bench) status(name string) string {
	for _, s := range b.health.Snapshot() {
		if s.ID == "m.job-"+name {
			return strings.TrimSuffix(fmt.Sprintf("%s %s: %s", s.Level, s.Message, s.Error), ": ")
		}
	}
	return ""
}

// start starts the group, for a test in a bubble.
func (b *bench) start(t *testing.T) {
	t.Helper()
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

func (b *bench) end(t *testing.T) {
	t.Helper()
	if err := b.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// clock notes when a job runs, in seconds since the start.
type clock struct {
	began time.Time

	mu sync.Mutex
	at []float64
}

func newClock() *clock { return &clock{began: time.Now()} }

// tick is how often it has ticked.
func (c *clock) tick() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = append(c.at, time.Since(c.began).Seconds())
	return len(c.at)
}

func (c *clock) want(t *testing.T, at ...float64) {
	t.Helper()
	synctest.Wait()
	if got := c.times(); !slices.Equal(got, at) {
		t.Errorf("ran at %v, want %v", got, at)
	}
}

func (c *clock) times() []float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.at)
}

// What fails at first and then goes on for ever is well.
func TestARetriedRunThatGoesOnIsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newBench(), newClock()
		var third string // what is told when the third run begins
		b.Add("x", job.OneShot(func(ctx context.Context) error {
			switch c.tick() {
			case 1:
				return errors.New("no")
			case 2:
				time.Sleep(time.Minute)
				return errors.New("not any more")
			case 3:
				third = b.status("x")
				return errors.New("no")
			}
			<-ctx.Done()
			return ctx.Err()
		}, job.Retry(time.Second, time.Second))) // each pause is half a second to one and a half
		b.start(t)
		at := func(second int, want string) {
			t.Helper()
			time.Sleep(time.Duration(second)*time.Second - time.Since(c.began))
			synctest.Wait()
			if got := b.status("x"); got != want {
				t.Errorf("after %d seconds: %q, want %q", second, got, want)
			}
		}
		at(0, "Degraded will try again: no")
		at(3, "Degraded will try again: no")
		at(7, "OK ")
		at(60, "OK ")
		at(66, "Degraded will try again: no")
		at(70, "OK ")
		if want := "Degraded will try again: not any more"; third != want {
			t.Errorf("before the third run: %q, want %q", third, want)
		}
		b.end(t)
	})
}

func TestOneShotRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, runs := newBench(), 0
		b.Add("x", job.OneShot(func(context.Context) error { runs++; time.Sleep(time.Second); return nil }))
		b.start(t)
		if got := b.status("x"); got != "OK " {
			t.Errorf("while it runs: %q", got)
		}
		pass(time.Hour)
		if got := b.status("x"); runs != 1 || got != "Stopped done" {
			t.Errorf("%d runs, %q", runs, got)
		}
		if diff := cmp.Diff([]string{"oneshot x 1s <nil>"}, b.ran); diff != "" {
			t.Error(diff)
		}
		b.end(t)
	})
}

func TestOneShotWithoutRetryFailsForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.Add("x", job.OneShot(func(context.Context) error { return errBroken }))
		b.start(t)
		if got := b.status("x"); got != "Degraded failed for good: broken" {
			t.Error(got)
		}
		if len(b.ran) != 1 || b.warnings() != 1 {
			t.Errorf("%v, %d warnings", b.ran, b.warnings())
		}
		b.end(t)
	})
}

func TestRetriesBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newBench(), newClock()
		b.Add("x", job.OneShot(func(context.Context) error { c.tick(); return errBroken }, job.Retry(time.Second, 8*time.Second)))
		b.start(t)
		if got := b.status("x"); got != "Degraded will try again: broken" {
			t.Error(got)
		}
		pass(10 * time.Minute)
		synctest.Wait()
		at := c.times()
		for i, base := range []float64{1, 2, 4, 8, 8, 8} { // seconds, each give or take half
			pause := at[i+1] - at[i]
			if pause < base/2 || pause > base*1.5+0.001 {
				t.Errorf("pause %d is %.2fs, want %.0fs give or take half", i, pause, base)
			}
		}
		if b.warnings() != 1 {
			t.Errorf("%d warnings for one row of failures", b.warnings())
		}
		b.end(t)
		runs := len(c.times())
		pass(time.Hour)
		if got := len(c.times()); got != runs || b.status("x") != "" {
			t.Errorf("%d runs after the stop, %q", got-runs, b.status("x"))
		}
	})
}

func TestRetriesEndWithSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, runs := newBench(), 0
		b.Add("x", job.OneShot(func(context.Context) error {
			if runs++; runs < 4 {
				return errBroken
			}
			return nil
		}, job.Retry(time.Second, time.Second)))
		b.start(t)
		pass(time.Hour)
		if got := b.status("x"); runs != 4 || got != "Stopped done" {
			t.Errorf("%d runs, %q", runs, got)
		}
		b.end(t)
	})
}

func TestTimerRunsAtTheStartAndIntervalAfterEachEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newBench(), newClock()
		b.Add("x", job.Timer(func(context.Context) error { c.tick(); time.Sleep(3 * time.Second); return nil }, 10*time.Second))
		b.start(t)
		pass(35 * time.Second)
		c.want(t, 0, 13, 26)
		b.end(t)
	})
}

func TestAnIntervalOfZeroIsOneRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newBench(), newClock()
		b.Add("x", job.Timer(func(context.Context) error { c.tick(); return nil }, 0))
		b.start(t)
		pass(time.Hour)
		c.want(t, 0)
		b.end(t)
	})
}

func TestDelayFirstRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newBench(), newClock()
		b.Add("x", job.Timer(func(context.Context) error { c.tick(); return nil }, 10*time.Second, job.DelayFirstRun()))
		b.start(t)
		pass(25 * time.Second)
		c.want(t, 10, 20)
		b.end(t)
	})
}

func TestAFailedTimerRunsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newBench(), newClock()
		b.Add("x", job.Timer(func(context.Context) error {
			if c.tick() == 2 {
				return nil
			}
			return errBroken
		}, 10*time.Second))
		b.start(t)
		if got := b.status("x"); got != "Degraded will run again: broken" {
			t.Error(got)
		}
		pass(15 * time.Second)
		c.want(t, 0, 10)
		if got := b.status("x"); got != "OK " {
			t.Error(got)
		}
		pass(10 * time.Second)
		if b.warnings() != 2 { // the second row of failures has a warning of its own
			t.Errorf("%d warnings", b.warnings())
		}
		b.end(t)
	})
}

func TestRetryOfATimerIsNeverLaterThanItsInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newBench(), newClock()
		var works atomic.Bool
		b.Add("x", job.Timer(func(context.Context) error {
			c.tick()
			if works.Load() {
				return nil
			}
			return errBroken
		}, 10*time.Second, job.Retry(time.Second, time.Hour)))
		b.start(t)
		pass(2 * time.Minute)
		synctest.Wait()
		at := c.times()
		if first := at[1] - at[0]; first > 1.51 {
			t.Errorf("the first retry came after %.2fs", first)
		}
		for i := range len(at) - 1 {
			if pause := at[i+1] - at[i]; pause > 10.001 {
				t.Errorf("pause %d is %.2fs", i, pause)
			}
		}
		works.Store(true)
		pass(time.Minute)
		at = c.times()
		last := len(at) - 1
		if pause := at[last] - at[last-1]; pause < 9.999 {
			t.Errorf("after success the pause is %.2fs", pause)
		}
		works.Store(false)
		pass(13 * time.Second)
		at = c.times()[last:] // the last success, the first failure, its retry
		if len(at) < 3 || at[2]-at[1] > 1.51 {
			t.Error("after success the back-off does not start over:", at)
		}
		b.end(t)
	})
}

func TestObserverHandlesEventsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		events := make(chan int)
		var got []int
		b.Add("x", job.Observer(events, func(_ context.Context, e int) error {
			got = append(got, e)
			if e == 2 {
				return errBroken
			}
			return nil
		}))
		b.start(t)
		events <- 1
		events <- 2
		synctest.Wait()
		if got := b.status("x"); got != "Degraded an event failed: broken" {
			t.Error(got)
		}
		events <- 3
		synctest.Wait()
		if got := b.status("x"); got != "OK " {
			t.Error(got)
		}
		close(events)
		synctest.Wait()
		if !slices.Equal(got, []int{1, 2, 3}) {
			t.Error(got)
		}
		if got := b.status("x"); got != "Stopped no more events" {
			t.Error(got)
		}
		b.end(t)
	})
}

func TestObserverTriesAnEventAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		events := make(chan int, 3)
		var got []int
		b.Add("x", job.Observer(events, func(_ context.Context, e int) error {
			got = append(got, e)
			if e == 1 && len(got) < 3 {
				return errBroken
			}
			return nil
		}, job.Retry(time.Second, time.Second)))
		events <- 1
		events <- 2
		events <- 3
		b.start(t)
		if got := b.status("x"); got != "Degraded will try again: broken" {
			t.Error(got)
		}
		pass(time.Minute)
		synctest.Wait()
		if want := []int{1, 1, 1, 2, 3}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		b.end(t)
	})
}

func TestAPanicEndsTheJobAndIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, runs := newBench(), 0
		b.Add("x", job.Timer(func(context.Context) error { runs++; panic("whoops") }, time.Second))
		b.start(t)
		pass(time.Minute)
		if diff := cmp.Diff([]string{"x whoops true"}, b.panicked); diff != "" {
			t.Error(diff)
		}
		if got := b.status("x"); runs != 1 || got != "Degraded panicked: whoops" {
			t.Errorf("%d runs, %q", runs, got)
		}
		if diff := cmp.Diff([]string{"timer x 0s panicked"}, b.ran); diff != "" {
			t.Error(diff)
		}
		b.end(t)
	})
}

func TestStopWaitsForTheJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		tidy := 0
		slow := job.OneShot(func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Second) // tidying up
			tidy++
			return ctx.Err()
		})
		b.Add("x", slow)
		single := b.Hook("y", slow)
		b.start(t)
		if err := single.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		b.end(t)
		if err := single.Stop(t.Context()); err != nil || tidy != 2 {
			t.Errorf("%v, %d jobs ended", err, tidy)
		}
		for _, line := range b.ran {
			if !strings.HasSuffix(line, "<nil>") {
				t.Error("a requested stop is no failure:", line)
			}
		}
		if got := b.health.Snapshot(); len(got) > 0 || b.warnings() > 0 {
			t.Errorf("%+v, %s", got, b.first)
		}
	})
}

// waitInVain is what a hanging job hangs in.
func waitInVain(release <-chan struct{}) { <-release }

func TestAJobThatHangsIsNamedWithItsStack(t *testing.T) {
	for _, kind := range []string{"group", "single"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, release := newBench(), make(chan struct{})
				hangs := job.OneShot(func(context.Context) error { waitInVain(release); return nil })
				var hook lifecycle.Hook = b.Runner
				if kind == "single" {
					hook = b.Hook("x", hangs)
				} else {
					b.Add("x", hangs)
					b.Add("other", job.Timer(func(context.Context) error { return nil }, time.Second))
				}
				if err := hook.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err := hook.Stop(ctx)
				hang := new(lifecycle.HangError)
				if !errors.As(err, &hang) || hang.Step != "m.job-x" || !strings.Contains(hang.Stack, "job_test.waitInVain (runtime/job_test/job_test.go:") {
					t.Error(err)
				}
				close(release)
				synctest.Wait()
			})
		})
	}
}

func TestJobsAddedBeforeWhileAndAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		var ran []string
		note := func(name string) job.Job {
			return job.OneShot(func(context.Context) error { b.note(&ran, name); return nil })
		}
		b.Add("before", note("before"))
		synctest.Wait()
		if len(ran) > 0 {
			t.Error("ran before the start:", ran)
		}
		b.start(t)
		b.Add("while", note("while"))
		synctest.Wait()
		b.Add("from a job", job.OneShot(func(context.Context) error { b.Add("inner", note("inner")); return nil }))
		synctest.Wait()
		b.end(t)
		b.Add("after", note("after"))
		synctest.Wait()
		if diff := cmp.Diff([]string{"before", "while", "inner"}, ran); diff != "" {
			t.Error(diff)
		}
		b.end(t)
	})
}

func TestTheZeroJobDoesNothing(t *testing.T) {
	b := newBench()
	b.Add("x", job.Job{})
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.end(t)
	if len(b.panicked) > 0 || b.status("x") != "" {
		t.Error(b.panicked, b.status("x"))
	}
}

func TestStopWithoutStart(t *testing.T) {
	b := newBench()
	b.Add("x", job.OneShot(func(context.Context) error { t.Error("ran"); return nil }))
	b.end(t)
}

func TestAGroupStartedAgainRunsWhatHadNotEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		runs := map[string]int{}
		count := func(name string) { b.mu.Lock(); runs[name]++; b.mu.Unlock() }
		b.Add("done", job.OneShot(func(context.Context) error { count("done"); return nil }))
		b.Add("stopped", job.OneShot(func(ctx context.Context) error { count("stopped"); <-ctx.Done(); return nil }))
		b.Add("panicked", job.OneShot(func(context.Context) error { count("panicked"); panic("whoops") }))
		b.start(t)
		b.end(t)
		b.start(t)
		b.end(t)
		if diff := cmp.Diff(map[string]int{"done": 1, "stopped": 2, "panicked": 2}, runs); diff != "" {
			t.Error(diff)
		}
	})
}

func TestASingleJobStartsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, runs := newBench(), 0
		single := b.Hook("x", job.Timer(func(context.Context) error { runs++; return nil }, time.Minute))
		for range 3 {
			if err := single.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if err := single.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if runs != 3 {
			t.Errorf("%d runs", runs)
		}
	})
}

func TestJobsCarryProfilingLabels(t *testing.T) {
	b := newBench()
	labels := map[string]string{}
	b.Add("x", job.OneShot(func(ctx context.Context) error {
		pprof.ForLabels(ctx, func(k, v string) bool { labels[k] = v; return true })
		return nil
	}))
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.end(t) // waits for it
	if diff := cmp.Diff(map[string]string{"module": "m", "job": "x"}, labels); diff != "" {
		t.Error(diff)
	}
}

func TestAddingAndStoppingAtOnce(t *testing.T) {
	for range 50 {
		b := newBench()
		if err := b.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		var adders sync.WaitGroup
		for i := range 4 {
			adders.Go(func() {
				for j := range 20 {
					b.Add(fmt.Sprint(i, j), job.OneShot(func(ctx context.Context) error { <-ctx.Done(); return nil }))
				}
			})
		}
		b.end(t)
		adders.Wait()
	}
}

// What a job leaves behind when it is stopped is the error of the stop.
func TestWhatAJobLeavesBehindIsTheErrorOfItsStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.Add("deaf", job.OneShot(func(ctx context.Context) error {
			<-ctx.Done()
			return &lifecycle.HangError{Step: "m work, bb/q7", Phase: lifecycle.Stopping, Stack: "  duty.wait (duty.go:7)"}
		}))
		b.Add("other", job.OneShot(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }))
		b.start(t)
		if err := b.Stop(t.Context()); err == nil || err.Error() != "stop of m work, bb/q7 hangs; it stands at:\n  duty.wait (duty.go:7)" {
			t.Errorf("Stop: %v", err)
		}
	})
}
