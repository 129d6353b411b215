// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-operator/skep/runtime/lifecycle"
	"github.com/skep-operator/skep/runtime/waittest"
)

func TestMain(m *testing.M) { waittest.Main(m) }

// diary notes what hooks do, in order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) add(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

func (d *diary) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	lines := d.lines
	d.lines = nil
	return lines
}

// step notes its starts and stops in the diary.
func (d *diary) step(id string, after ...int) lifecycle.Step {
	return lifecycle.Step{ID: id, After: after, Hook: lifecycle.Funcs{
		OnStart: func(context.Context) error { d.add("start " + id); return nil },
		OnStop:  func(context.Context) error { d.add("stop " + id); return nil },
	}}
}

func failing(id string, err error, after ...int) lifecycle.Step {
	return lifecycle.Step{ID: id, After: after, Hook: lifecycle.Funcs{
		OnStart: func(context.Context) error { return err },
		OnStop:  func(context.Context) error { return err },
	}}
}

var errBroken = errors.New("broken")

func mustStart(t *testing.T, r *lifecycle.Runner) {
	t.Helper()
	if failures := r.Start(t.Context(), r.All()); len(failures) > 0 {
		t.Fatal(failures)
	}
}

func mustStop(t *testing.T, r *lifecycle.Runner) {
	t.Helper()
	if failures := r.Stop(t.Context(), r.All()); len(failures) > 0 {
		t.Fatal(failures)
	}
}

func TestStartFollowsTheGraphAndStopReversesIt(t *testing.T) {
	var d diary
	r := lifecycle.NewRunner([]lifecycle.Step{d.step("a"), d.step("b", 0), d.step("c", 1)}, nil)
	mustStart(t, r)
	if diff := cmp.Diff([]string{"start a", "start b", "start c"}, d.take()); diff != "" {
		t.Error(diff)
	}
	mustStop(t, r)
	if diff := cmp.Diff([]string{"stop c", "stop b", "stop a"}, d.take()); diff != "" {
		t.Error(diff)
	}
}

func TestStartingTwiceAndStoppingTwiceDoNothing(t *testing.T) {
	var d diary
	r := lifecycle.NewRunner([]lifecycle.Step{d.step("a"), {ID: "empty", Hook: lifecycle.Funcs{}}}, nil)
	mustStop(t, r) // nothing is started
	mustStart(t, r)
	mustStart(t, r)
	mustStop(t, r)
	mustStop(t, r)
	if diff := cmp.Diff([]string{"start a", "stop a"}, d.take()); diff != "" {
		t.Error(diff)
	}
	mustStart(t, r)
	mustStop(t, r)
	if diff := cmp.Diff([]string{"start a", "stop a"}, d.take()); diff != "" {
		t.Error("a second life:", diff)
	}
}

// meet returns hooks that can start, and stop, only all at the same time.
func meet(ids ...string) []lifecycle.Step {
	rendezvous := func() func(context.Context) error {
		var here sync.WaitGroup
		here.Add(len(ids))
		return func(context.Context) error { here.Done(); here.Wait(); return nil }
	}
	start, stop := rendezvous(), rendezvous()
	var steps []lifecycle.Step
	for _, id := range ids {
		steps = append(steps, lifecycle.Step{ID: id, Hook: lifecycle.Funcs{OnStart: start, OnStop: stop}})
	}
	return steps
}

func TestIndependentHooksRunConcurrently(t *testing.T) {
	r := lifecycle.NewRunner(meet("a", "b", "c"), nil)
	mustStart(t, r)
	mustStop(t, r)
}

func TestReadyHooksDoNotWaitForAWholeLevel(t *testing.T) {
	started := make(chan struct{})
	r := lifecycle.NewRunner([]lifecycle.Step{
		{ID: "quick", Hook: lifecycle.Funcs{}},
		{ID: "slow", Hook: lifecycle.Funcs{OnStart: func(context.Context) error { <-started; return nil }}},
		{ID: "after quick", After: []int{0}, Hook: lifecycle.Funcs{OnStart: func(context.Context) error { close(started); return nil }}},
	}, nil)
	mustStart(t, r)
}

func TestAFailedStepBlocksWhatComesAfterAndNothingElse(t *testing.T) {
	var d diary
	r := lifecycle.NewRunner([]lifecycle.Step{
		failing("a", errBroken), d.step("b", 0), d.step("c", 1), d.step("d"), d.step("e", 3),
	}, nil)
	failures := r.Start(t.Context(), r.All())
	want := []lifecycle.Failure{{Step: 0, Err: errBroken}, {Step: 1, Err: lifecycle.ErrBlocked}, {Step: 2, Err: lifecycle.ErrBlocked}}
	if !slices.Equal(failures, want) {
		t.Errorf("%v, want %v", failures, want)
	}
	for i, want := range []bool{false, false, false, true, true} {
		if r.Started(i) != want {
			t.Errorf("Started(%d) = %v", i, !want)
		}
	}
	mustStop(t, r)
	if diff := cmp.Diff([]string{"start d", "start e", "stop e", "stop d"}, d.take()); diff != "" {
		t.Error(diff)
	}
}

func TestABlockedStepStartsOnceWhatItNeedsIsUp(t *testing.T) {
	var d diary
	broken := failing("a", errBroken)
	r := lifecycle.NewRunner([]lifecycle.Step{broken, d.step("b", 0)}, nil)
	r.Start(t.Context(), r.All())
	if failures := r.Start(t.Context(), []int{1}); len(failures) != 1 || failures[0].Err != lifecycle.ErrBlocked {
		t.Fatalf("b started without a: %v", failures)
	}
	r.SetHook(0, d.step("a").Hook)
	if failures := r.Start(t.Context(), []int{0}); len(failures) > 0 {
		t.Fatal(failures)
	}
	if failures := r.Start(t.Context(), []int{1}); len(failures) > 0 {
		t.Fatal(failures)
	}
	if diff := cmp.Diff([]string{"start a", "start b"}, d.take()); diff != "" {
		t.Error(diff)
	}
	mustStop(t, r)
}

// Behind is order, not need.
func TestBehindWaitsForATryNotForSuccess(t *testing.T) {
	for name, first := range map[string]func(*diary) lifecycle.Step{
		"started": func(d *diary) lifecycle.Step { return d.step("first") },
		"failed": func(d *diary) lifecycle.Step {
			return lifecycle.Step{ID: "first", Hook: lifecycle.Funcs{OnStart: func(context.Context) error { d.add("start first"); return errBroken }}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var d diary
			behind := d.step("second")
			behind.Behind = []int{0}
			r := lifecycle.NewRunner([]lifecycle.Step{first(&d), behind}, nil)
			r.Start(t.Context(), r.All())
			if diff := cmp.Diff([]string{"start first", "start second"}, d.take()); diff != "" {
				t.Error(diff)
			}
			mustStop(t, r)
		})
	}
}

func TestBehindABlockedStepStarts(t *testing.T) {
	var d diary
	behind := d.step("behind")
	behind.Behind = []int{1}
	r := lifecycle.NewRunner([]lifecycle.Step{failing("a", errBroken), d.step("blocked", 0), behind, d.step("after behind", 2)}, nil)
	failures := r.Start(t.Context(), r.All())
	if len(failures) != 2 {
		t.Errorf("%v", failures)
	}
	if diff := cmp.Diff([]string{"start behind", "start after behind"}, d.take()); diff != "" {
		t.Error(diff)
	}
	mustStop(t, r)
}

func TestStopKeepsTheOrderOfBehind(t *testing.T) {
	var d diary
	behind := d.step("b")
	behind.Behind = []int{0}
	r := lifecycle.NewRunner([]lifecycle.Step{d.step("a"), behind}, nil)
	mustStart(t, r)
	d.take()
	mustStop(t, r)
	if diff := cmp.Diff([]string{"stop b", "stop a"}, d.take()); diff != "" {
		t.Error(diff)
	}
}

func TestAFailureToStopStopsNothingElse(t *testing.T) {
	var d diary
	bad := d.step("b", 0)
	bad.Hook = lifecycle.Funcs{OnStop: func(context.Context) error { return errBroken }}
	r := lifecycle.NewRunner([]lifecycle.Step{d.step("a"), bad, d.step("c", 1)}, nil)
	mustStart(t, r)
	d.take()
	failures := r.Stop(t.Context(), r.All())
	if !slices.Equal(failures, []lifecycle.Failure{{Step: 1, Err: errBroken}}) {
		t.Error(failures)
	}
	if diff := cmp.Diff([]string{"stop c", "stop a"}, d.take()); diff != "" {
		t.Error(diff)
	}
	if r.Started(1) {
		t.Error("what failed to stop counts as running")
	}
}

func TestASubsetStopsAndStartsAlone(t *testing.T) {
	var d diary
	r := lifecycle.NewRunner([]lifecycle.Step{d.step("a"), d.step("b", 0), d.step("c", 1), d.step("d")}, nil)
	mustStart(t, r)
	d.take()
	if failures := r.Stop(t.Context(), []int{1, 2}); len(failures) > 0 {
		t.Fatal(failures)
	}
	if failures := r.Start(t.Context(), []int{2, 1}); len(failures) > 0 {
		t.Fatal(failures)
	}
	if diff := cmp.Diff([]string{"stop c", "stop b", "start b", "start c"}, d.take()); diff != "" {
		t.Error(diff)
	}
	mustStop(t, r)
}

func TestADeadlineOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waits := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		r := lifecycle.NewRunner([]lifecycle.Step{
			{ID: "m.slow", Hook: lifecycle.Funcs{OnStart: waits}, StartTimeout: 3 * time.Second},
			{ID: "m.other", Hook: lifecycle.Funcs{OnStop: waits}, StopTimeout: 7 * time.Second},
		}, nil)
		began := time.Now()
		failures := r.Start(t.Context(), r.All())
		if took := time.Since(began); took != 3*time.Second {
			t.Error("took", took)
		}
		if len(failures) != 1 || !errors.Is(failures[0].Err, context.DeadlineExceeded) ||
			!strings.Contains(failures[0].Err.Error(), "start of m.slow took longer than its 3s") {
			t.Error(failures)
		}
		began = time.Now()
		failures = r.Stop(t.Context(), r.All())
		if took := time.Since(began); took != 7*time.Second {
			t.Error("took", took)
		}
		if len(failures) != 1 || !strings.Contains(failures[0].Err.Error(), "stop of m.other took longer than its 7s") {
			t.Error(failures)
		}
	})
}

func TestNothingMoreStartsOnceTheContextHasEnded(t *testing.T) {
	var d diary
	told := errors.New("told to stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	first := d.step("a")
	first.Hook = lifecycle.Funcs{OnStart: func(context.Context) error { cancel(told); return nil }}
	r := lifecycle.NewRunner([]lifecycle.Step{first, d.step("b", 0)}, nil)
	failures := r.Start(ctx, r.All())
	if len(failures) != 1 || failures[0].Step != 1 || !errors.Is(failures[0].Err, told) {
		t.Error(failures)
	}
	if got := d.take(); len(got) > 0 {
		t.Error(got)
	}
	mustStop(t, r)
}

func TestStopRunsHooksAlsoWhenTheContextHasEnded(t *testing.T) {
	var d diary
	r := lifecycle.NewRunner([]lifecycle.Step{d.step("a")}, nil)
	mustStart(t, r)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.Stop(ctx, r.All())
	if diff := cmp.Diff([]string{"start a", "stop a"}, d.take()); diff != "" {
		t.Error(diff)
	}
}

// dialForever is what a hanging hook hangs in.
func dialForever(release <-chan struct{}) { <-release }

func TestAHookThatHangsIsNamedWithItsStack(t *testing.T) {
	for _, phase := range []lifecycle.Phase{lifecycle.Starting, lifecycle.Stopping} {
		t.Run(string(phase), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				hangs := func(context.Context) error {
					go dialForever(release) // a goroutine of the hook is not the hook
					func() { dialForever(release) }()
					return errBroken
				}
				hook := lifecycle.Funcs{OnStart: hangs}
				if phase == lifecycle.Stopping {
					hook = lifecycle.Funcs{OnStop: hangs}
				}
				var d diary
				r := lifecycle.NewRunner([]lifecycle.Step{
					{ID: "m.hook-dial", Hook: hook, StartTimeout: time.Minute, StopTimeout: time.Minute}, d.step("other"),
				}, nil)
				began := time.Now()
				failures := r.Start(t.Context(), r.All())
				if phase == lifecycle.Stopping {
					failures = r.Stop(t.Context(), r.All())
				}
				if took := time.Since(began); took != time.Minute+lifecycle.Grace {
					t.Error("waited", took)
				}
				hang := new(lifecycle.HangError)
				if len(failures) != 1 || !errors.As(failures[0].Err, &hang) {
					t.Fatal(failures)
				}
				if hang.Step != "m.hook-dial" || hang.Phase != phase || r.Started(0) {
					t.Errorf("%+v", hang)
				}
				if !strings.Contains(hang.Stack, "lifecycle_test.dialForever (runtime/lifecycle_test/lifecycle_test.go:") {
					t.Error("the stack does not name the function:\n", hang.Stack)
				}
				if !strings.Contains(hang.Error(), string(phase)+" of m.hook-dial hangs; it stands at:\n  ") {
					t.Error(hang)
				}
				if strings.Contains(hang.Stack, "recovered") {
					t.Error("frames of the runner show:\n", hang.Stack)
				}
				close(release)
				mustStop(t, r)
			})
		})
	}
}

func TestGraceIsForHooksThatEndSoonAfterTheirDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(lifecycle.Grace - time.Second)
			return nil
		}
		r := lifecycle.NewRunner([]lifecycle.Step{{ID: "late", Hook: lifecycle.Funcs{OnStart: late}, StartTimeout: time.Second}}, nil)
		mustStart(t, r)
		mustStop(t, r)
	})
}

func TestAStartThatSucceedsAfterItWasGivenUpIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		release := make(chan struct{})
		r := lifecycle.NewRunner([]lifecycle.Step{{ID: "late", StartTimeout: time.Second, Hook: lifecycle.Funcs{
			OnStart: func(context.Context) error { <-release; d.add("start"); return nil },
			OnStop: func(ctx context.Context) error {
				if ctx.Err() == nil {
					d.add("stop")
				}
				return nil
			},
		}}}, nil)
		if failures := r.Start(t.Context(), r.All()); len(failures) != 1 {
			t.Fatal(failures)
		}
		r.SetHook(0, lifecycle.Funcs{})
		close(release)
		synctest.Wait()
		if diff := cmp.Diff([]string{"start", "stop"}, d.take()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestPanicsAreFailures(t *testing.T) {
	panics := func(context.Context) error { panic("whoops") }
	var d diary
	r := lifecycle.NewRunner([]lifecycle.Step{
		{ID: "start", Hook: lifecycle.Funcs{OnStart: panics}},
		{ID: "stop", Hook: lifecycle.Funcs{OnStop: panics}},
		d.step("other"),
	}, nil)
	failures := r.Start(t.Context(), r.All())
	panicked := new(lifecycle.PanicError)
	if len(failures) != 1 || failures[0].Step != 0 || !errors.As(failures[0].Err, &panicked) || panicked.Value != "whoops" {
		t.Fatal(failures)
	}
	if !strings.Contains(string(panicked.Stack), "TestPanicsAreFailures") {
		t.Error("the stack is not that of the panic")
	}
	if want := "panic: whoops (runtime/lifecycle_test/lifecycle_test.go:"; !strings.HasPrefix(panicked.Error(), want) {
		t.Error(panicked)
	}
	failures = r.Stop(t.Context(), r.All())
	if len(failures) != 1 || failures[0].Step != 1 || !errors.As(failures[0].Err, &panicked) {
		t.Error(failures)
	}
	if diff := cmp.Diff([]string{"start other", "stop other"}, d.take()); diff != "" {
		t.Error(diff)
	}
}

func TestAHookThatEndsItsGoroutineIsNotWaitedFor(t *testing.T) {
	r := lifecycle.NewRunner([]lifecycle.Step{{ID: "exits", Hook: lifecycle.Funcs{OnStart: func(context.Context) error {
		(&testing.T{}).SkipNow()
		return nil
	}}}}, nil)
	failures := r.Start(t.Context(), r.All())
	if len(failures) != 1 || !strings.Contains(failures[0].Err.Error(), "ended its goroutine") {
		t.Error(failures)
	}
}

func TestObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []lifecycle.Event
		r := lifecycle.NewRunner([]lifecycle.Step{{ID: "a", Hook: lifecycle.Funcs{
			OnStart: func(context.Context) error { time.Sleep(time.Second); return nil },
			OnStop:  func(context.Context) error { return errBroken },
		}}}, func(e lifecycle.Event) { events = append(events, e) })
		r.Start(t.Context(), r.All())
		r.Stop(t.Context(), r.All())
		want := []lifecycle.Event{
			{Step: "a", Phase: lifecycle.Starting},
			{Step: "a", Phase: lifecycle.Starting, Done: true, Took: time.Second},
			{Step: "a", Phase: lifecycle.Stopping},
			{Step: "a", Phase: lifecycle.Stopping, Done: true, Err: errBroken},
		}
		if !slices.Equal(events, want) {
			t.Errorf("%+v", events)
		}
	})
}

// TestRandomGraphs holds the runner against the definition: a step runs if and
// only if all that it comes after run, after each of these and after each that
// it is behind was tried; and stops before all of them.
func TestRandomGraphs(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		n := 1 + rng.IntN(12)
		type moment struct{ tried, started, stopped int }
		var mu sync.Mutex
		clock, moments := 0, make([]moment, n)
		tick := func(into *int) { mu.Lock(); defer mu.Unlock(); clock++; *into = clock }
		steps, broken := make([]lifecycle.Step, n), map[int]bool{}
		for i := range steps {
			for j := range i {
				switch rng.IntN(5) {
				case 0:
					steps[i].After = append(steps[i].After, j)
				case 1:
					steps[i].Behind = append(steps[i].Behind, j)
				}
			}
			broken[i] = rng.IntN(5) == 0
			steps[i].ID = fmt.Sprint(i)
			steps[i].Hook = lifecycle.Funcs{
				OnStart: func(context.Context) error {
					tick(&moments[i].tried)
					if broken[i] {
						return errBroken
					}
					tick(&moments[i].started)
					return nil
				},
				OnStop: func(context.Context) error { tick(&moments[i].stopped); return nil },
			}
		}
		r := lifecycle.NewRunner(steps, nil)
		failures := map[int]error{}
		for _, f := range r.Start(t.Context(), r.All()) {
			failures[f.Step] = f.Err
		}
		mustStop(t, r)
		up, wanted := map[int]bool{}, map[int]error{}
		for i := range steps {
			free := !slices.ContainsFunc(steps[i].After, func(j int) bool { return !up[j] })
			up[i] = free && !broken[i]
			switch {
			case !free:
				wanted[i] = lifecycle.ErrBlocked
			case broken[i]:
				wanted[i] = errBroken
			}
			if (moments[i].started > 0) != up[i] || (moments[i].stopped > 0) != up[i] || (moments[i].tried > 0) != free {
				t.Fatalf("seed %d: step %d: %+v, want up %v", seed, i, moments[i], up[i])
			}
			for _, j := range slices.Concat(steps[i].After, steps[i].Behind) {
				if free && moments[j].tried > moments[i].tried || up[i] && up[j] && (moments[j].started > moments[i].tried || moments[j].stopped < moments[i].stopped) {
					t.Fatalf("seed %d: step %d and %d are out of order: %+v, %+v", seed, i, j, moments[i], moments[j])
				}
			}
		}
		if !maps.Equal(failures, wanted) {
			t.Fatalf("seed %d: failures %v, want %v", seed, failures, wanted)
		}
	}
}

// A panic that is handed on keeps the place where it was first, and is named once.
func TestAPanicThatIsHandedOnKeepsItsPlace(t *testing.T) {
	inner := lifecycle.Recover(func() error { panic("boom") })
	handedOn := lifecycle.Recover(func() error { panic(inner) })
	named := lifecycle.Recover(func() error { panic(fmt.Errorf("handling bb/q7: %w", inner)) })
	for _, test := range []struct {
		err  error
		want string
	}{
		{inner, "panic: boom (runtime/lifecycle_test/lifecycle_test.go:"},
		{handedOn, "panic: boom (runtime/lifecycle_test/lifecycle_test.go:"},
		{named, "handling bb/q7: panic: boom (runtime/lifecycle_test/lifecycle_test.go:"},
	} {
		p := new(lifecycle.PanicError)
		if !errors.As(test.err, &p) || !strings.HasPrefix(test.err.Error(), test.want) || p.Place() != inner.(*lifecycle.PanicError).Place() {
			t.Errorf("%v, of %s", test.err, p.Place())
		}
	}
	if err := lifecycle.Recover(func() error { return io.EOF }); !errors.Is(err, io.EOF) {
		t.Errorf("%v", err)
	}
}
