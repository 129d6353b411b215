// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
	"github.com/skep-operator/skep/runtime/logging/logtest"
	"github.com/skep-operator/skep/runtime/metrics"
	"github.com/skep-operator/skep/runtime/waittest"
)

// bubble is a hive in a bubble, with the handle of its term.
type bubble struct {
	diary
	census
	t      *testing.T
	told   chan string // what makes a job panic
	other  chan string // what makes another one panic
	hive   *hive.Hive
	term   lifecycle.Term
	health *health.Tree
	log    logtest.Buffer
}

// inBubble runs a test of a hive in a bubble. Modules that fail are tried again
// after one second at first, and after eight at most.
func inBubble(t *testing.T, cells func(b *bubble) cell.Cell, test func(b *bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{t: t, told: make(chan string), other: make(chan string)}
		b.hive = hive.New("test", cell.Set(entering(&b.term), watching(&b.health), cells(b)), hive.LogTo(&b.log), noEnvironment,
			hive.RebuildBackoff(time.Second, 8*time.Second), hive.StartStopTimeouts(time.Minute, time.Minute))
		if err := b.hive.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		test(b)
		if err := b.hive.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// pass lets time pass and what is due happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (b *bubble) enter() {
	b.t.Helper()
	mustEnter(b.t, b.term)
	synctest.Wait()
}

func (b *bubble) leave() {
	b.t.Helper()
	mustLeave(b.t, b.term)
}

func (b *bubble) wantHealth(want ...string) {
	b.t.Helper()
	wantHealth(b.t, b.health, want...)
}

func (b *bubble) want(want ...string) {
	b.t.Helper()
	b.diary.want(b.t, want...)
}

// panicking is a job that panics when told.
func panicking(told <-chan string) job.Job {
	return job.OneShot(func(ctx context.Context) error {
		select {
		case text := <-told:
			panic(text)
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// counted is a value that knows how often it was built.
type (
	base   struct{ n int }
	middle struct{ n int }
	top    struct{ n int }
)

// family is three modules of which each holds a value of the one before, and
// one that holds one of the first only. The second panics when told.
func relatives(b *bubble) cell.Cell {
	return cell.Set(
		cell.Module("base", "Is needed by all", cell.Provide(func() *base { return &base{b.count("base")} }),
			cell.Hook("x", func(v *base) lifecycle.Hook { return b.hook(fmt.Sprint("base", v.n)) })),
		cell.Module("middle", "Panics", cell.Provide(func(*base) *middle { return &middle{b.count("middle")} }),
			cell.Hook("x", func(v *middle) lifecycle.Hook { return b.hook(fmt.Sprint("middle", v.n)) }),
			cell.Job("panics", func(*middle) job.Job { return panicking(b.told) })),
		cell.Module("top", "Holds a value of the one that panics", cell.Provide(func(*middle) *top { return &top{b.count("top")} }),
			cell.Hook("x", func(v *top) lifecycle.Hook { return b.hook(fmt.Sprint("top", v.n)) })),
		cell.Module("aside", "Holds none", cell.Hook("x", func(*base) lifecycle.Hook { return b.hook(fmt.Sprint("aside", b.count("aside"))) })),
	)
}

func TestAPanicRebuildsTheModuleAndThoseThatHoldItsValues(t *testing.T) {
	inBubble(t, func(b *bubble) cell.Cell { return cell.Term("leader", relatives(b)) }, func(b *bubble) {
		b.enter()
		b.diary.wantSorted(b.t, "start base1", "start middle1", "start top1", "start aside1")
		b.told <- "whoops"
		synctest.Wait()
		b.want("stop top1", "stop middle1", "start middle2", "start top2")
		b.wantHealth("OK middle.job-panics", "OK middle.start: rebuilt")
		if diff := cmp.Diff(map[string]int{"base": 1, "middle": 2, "top": 2, "aside": 1}, b.counts); diff != "" {
			b.t.Error(diff)
		}
		for _, want := range []string{`level=error msg="module panicked" panic=whoops`, "subsys=middle", "supervisor_test.go", `msg="module rebuilt" module=middle`} {
			if !strings.Contains(b.log.String(), want) {
				b.t.Errorf("the log does not say %s:\n%s", want, b.log.String())
			}
		}
		b.told <- "again" // a second one in a row costs no pause either
		synctest.Wait()
		b.want("stop top2", "stop middle2", "start middle3", "start top3")
		b.leave()
		b.diary.wantSorted(b.t, "stop top3", "stop middle3", "stop aside1", "stop base1")
		b.wantHealth()
	})
}

func TestTheThirdPanicInARowTakesTheModuleDownForAWhile(t *testing.T) {
	inBubble(t, func(b *bubble) cell.Cell { return cell.Term("leader", relatives(b)) }, func(b *bubble) {
		b.enter()
		b.take()
		for range 2 {
			b.told <- "whoops"
			synctest.Wait()
		}
		b.take()
		pauses := []time.Duration{1, 2, 4, 8, 8, 8}
		for i, seconds := range pauses {
			n := i + 3
			b.told <- "whoops"
			synctest.Wait()
			b.want(fmt.Sprint("stop top", n), fmt.Sprint("stop middle", n)) // nothing half-written runs meanwhile
			b.wantHealth(
				fmt.Sprintf("Degraded middle.start: failed %d times in a row; next try in %s: panic: whoops (runtime/hive_test/supervisor_test.go)", n, seconds*time.Second),
				"Degraded top.start: waits for middle")
			pass(seconds*time.Second - time.Millisecond)
			b.want()
			pass(time.Millisecond)
			b.want(fmt.Sprint("start middle", n+1), fmt.Sprint("start top", n+1))
			b.wantHealth("OK middle.job-panics", "OK middle.start: rebuilt")
		}
		if b.of("base") != 1 || b.of("aside") != 1 {
			b.t.Error("others were rebuilt")
		}
		pass(9 * time.Second) // longer than the longest pause: it starts over
		for range 2 {
			b.told <- "whoops"
			synctest.Wait()
		}
		if got := b.take(); len(got) != 8 {
			b.t.Error(got)
		}
		b.leave()
	})
}

func TestLeavingWhileAModuleIsDown(t *testing.T) {
	inBubble(t, func(b *bubble) cell.Cell { return cell.Term("leader", relatives(b)) }, func(b *bubble) {
		b.enter()
		for range 3 {
			b.told <- "whoops"
			synctest.Wait()
		}
		b.take()
		b.leave()
		b.diary.wantSorted(b.t, "stop aside1", "stop base1")
		b.wantHealth()
		pass(time.Hour)
		b.want()
		b.enter() // a new term has no history
		b.wantHealth("OK middle.job-panics")
		b.leave()
	})
}

func TestAHookThatFailsInATermIsTriedAgain(t *testing.T) {
	inBubble(t, func(b *bubble) cell.Cell {
		return cell.Term("leader",
			cell.Module("weak", "Fails at first", cell.Provide(func() *middle { return &middle{b.count("weak")} }),
				cell.Hook("x", func(v *middle) lifecycle.Hook {
					return lifecycle.Funcs{OnStart: func(context.Context) error {
						b.add(fmt.Sprint("try ", v.n))
						if v.n < 4 {
							return errBroken
						}
						return nil
					}, OnStop: func(context.Context) error { b.add("stop weak"); return nil }}
				})),
			cell.Module("needs", "Needs it", cell.Hook("x", func(*middle) lifecycle.Hook { return b.hook("needs") })),
			cell.Module("after", "Only comes after", cell.Hook("x", func() lifecycle.Hook { return b.hook("after") }), cell.StartAfter("weak", "to be late")),
			cell.Module("aside", "Does not care", cell.Hook("x", func() lifecycle.Hook { return b.hook("aside") })))
	}, func(b *bubble) {
		b.enter()
		b.diary.wantSorted(b.t, "try 1", "start after", "start aside")
		b.wantHealth("Degraded needs.start: waits for weak", "Degraded weak.start: failed 1 times in a row; next try in 1s: starting weak.hook-x: broken")
		pass(time.Second)
		b.want("try 2")
		b.wantHealth("Degraded needs.start: waits for weak", "Degraded weak.start: failed 2 times in a row; next try in 2s: starting weak.hook-x: broken")
		pass(2 * time.Second)
		b.want("try 3")
		pass(4 * time.Second)
		b.want("try 4", "start needs")
		b.wantHealth("OK weak.start: rebuilt")
		b.leave()
		b.diary.wantSorted(b.t, "stop needs", "stop weak", "stop after", "stop aside")
		b.wantHealth()
	})
}

func TestAConstructorThatFailsInATermHurtsOnlyWhatNeedsIt(t *testing.T) {
	var works atomic.Bool
	inBubble(t, func(b *bubble) cell.Cell {
		return cell.Term("leader",
			cell.Module("broken", "Fails to build", cell.Provide(func() (*middle, error) {
				b.count("tries")
				if works.Load() {
					return &middle{}, nil
				}
				return nil, errBroken
			}), cell.Hook("own", func() lifecycle.Hook { return b.hook("own") })),
			cell.Module("needs", "Needs it", cell.Provide(func(*middle) *top { b.count("top"); return &top{} }), cell.Hook("x", func(*top) lifecycle.Hook { return b.hook("needs") })),
			cell.Module("needs-too", "Needs what needs it", cell.Invoke(func(*top) { b.add("invoke") }), cell.Hook("x", func() lifecycle.Hook { return b.hook("needs-too") })),
			cell.Module("aside", "Does not", cell.Hook("x", func() lifecycle.Hook { return b.hook("aside") })))
	}, func(b *bubble) {
		b.enter()
		b.want("start aside")
		b.wantHealth(
			"Degraded broken.start: failed 1 times in a row; next try in 1s: failed constructor: func literal in hive_test.TestAConstructorThatFailsInATermHurtsOnlyWhatNeedsIt: broken",
			"Degraded needs.start: waits for broken", "Degraded needs-too.start: waits for broken")
		if got := strings.Count(b.log.String(), `level=error msg="module failed to start"`); got != 1 {
			b.t.Errorf("one failure is told %d times:\n%s", got, b.log.String())
		}
		works.Store(true)
		pass(time.Second)
		if got := b.take(); len(got) != 4 || got[0] != "invoke" {
			b.t.Error(got)
		}
		b.wantHealth("OK broken.start: rebuilt")
		if b.of("tries") != 2 || b.of("top") != 1 {
			b.t.Error(b.counts)
		}
		b.leave()
	})
}

func TestAnInvokeThatFailsInATermIsTriedAgain(t *testing.T) {
	inBubble(t, func(b *bubble) cell.Cell {
		return cell.Term("leader",
			cell.Module("broken", "Fails its invoke", cell.Invoke(func() error {
				if b.count("tries") < 3 {
					return errBroken
				}
				return nil
			}), cell.Hook("x", func() lifecycle.Hook { return b.hook("broken") })),
			cell.Module("aside", "Does not", cell.Hook("x", func() lifecycle.Hook { return b.hook("aside") })))
	}, func(b *bubble) {
		b.enter()
		b.want("start aside")
		pass(time.Second)
		b.want()
		pass(2 * time.Second)
		b.want("start broken")
		b.wantHealth("OK broken.start: rebuilt")
		b.leave()
	})
}

func TestAConstructorThatPanicsInATerm(t *testing.T) {
	inBubble(t, func(b *bubble) cell.Cell {
		return cell.Term("leader", cell.Module("m", "Panics at first", cell.Provide(func() *middle {
			if n := b.count("tries"); n < 4 {
				panic("whoops")
			}
			return &middle{}
		}), cell.Hook("x", func(*middle) lifecycle.Hook { return b.hook("m") })))
	}, func(b *bubble) {
		b.enter()
		if b.of("tries") != 3 {
			b.t.Error("the first two panics cost no pause:", b.counts)
		}
		b.want()
		pass(time.Second)
		b.want("start m")
		b.leave()
	})
}

// K8S-20: where an object waits that led to a panic, the module is rebuilt at once, time and again: the others are not to wait.
func TestAPanicWhoseObjectIsSetAsideCostsNoPause(t *testing.T) {
	inBubble(t, func(b *bubble) cell.Cell {
		return cell.Term("leader", cell.Module("m", "Panics", cell.Provide(func() *middle { b.count("m"); return &middle{} }), cell.Job("panics", func(*middle) job.Job {
			return job.OneShot(func(ctx context.Context) error {
				select {
				case <-b.told:
				case <-ctx.Done():
					return ctx.Err()
				}
				panic(&lifecycle.PanicError{Value: "handling bb/q7 panicked", SetAside: true})
			})
		})))
	}, func(b *bubble) {
		b.enter()
		for range 9 {
			b.told <- ""
			synctest.Wait()
		}
		if n := b.of("m"); n != 10 {
			b.t.Errorf("built %d times at once, want 10", n)
		}
		b.leave()
	})
}

// The pause of one module is not cut short by another that is rebuilt.
func TestPausesAreEachModulesOwn(t *testing.T) {
	inBubble(t, func(b *bubble) cell.Cell {
		return cell.Term("leader",
			cell.Module("weak", "Never starts", cell.Provide(func() (*top, error) { b.count("weak"); return nil, errBroken }), cell.Invoke(func(*top) {})),
			cell.Module("holder", "Holds a value of the one that panics, and fails", cell.Provide(func(*middle) (*value, error) { b.count("holder"); return nil, errBroken }), cell.Invoke(func(*value) {})),
			cell.Module("m", "Panics", cell.Provide(func() *middle { b.count("m"); return &middle{} }), cell.Job("panics", func(*middle) job.Job { return panicking(b.told) })))
	}, func(b *bubble) {
		b.enter()
		pass(3500 * time.Millisecond) // tries of weak and holder at 0, 1, 3; next at 7
		if b.of("weak") != 3 || b.of("holder") != 3 {
			b.t.Error(b.counts)
		}
		b.told <- "whoops"
		synctest.Wait()
		b.told <- "whoops"
		synctest.Wait()
		if b.of("m") != 3 || b.of("weak") != 3 || b.of("holder") != 3 {
			b.t.Error(b.counts)
		}
		pass(3500 * time.Millisecond)
		if b.of("m") != 3 || b.of("weak") != 4 || b.of("holder") != 4 {
			b.t.Error(b.counts)
		}
		b.leave()
	})
}

func TestTwoModulesThatPanicAtOnce(t *testing.T) {
	var both chan struct{}
	panics := func() job.Job {
		return job.OneShot(func(ctx context.Context) error {
			select {
			case <-both:
				panic("whoops")
			case <-ctx.Done():
				return nil
			}
		})
	}
	inBubble(t, func(b *bubble) cell.Cell {
		both = make(chan struct{})
		return cell.Term("leader",
			cell.Module("one", "Panics", cell.Provide(func() *middle { return &middle{b.count("one")} }), cell.Job("x", func(*middle) job.Job { return panics() })),
			cell.Module("two", "Panics", cell.Provide(func(*middle) *top { return &top{b.count("two")} }), cell.Job("x", func(*top) job.Job { return panics() })))
	}, func(b *bubble) {
		b.enter()
		close(both)
		synctest.Wait() // they panic again and again, until one is down for a while
		if b.of("one") != 3 || b.of("two") > 5 {
			b.t.Error(b.counts)
		}
		for range 3 {
			before := b.of("one")
			pass(10 * time.Second)
			if b.of("one") == before {
				b.t.Error("the pause never ends")
			}
		}
		b.leave()
		b.wantHealth()
	})
}

func TestWhatWasReportedAndRegisteredGoesWithTheModule(t *testing.T) {
	var registry *metrics.Registry
	inBubble(t, func(b *bubble) cell.Cell {
		return cell.Set(
			cell.Module("registry", "Gives the test the metrics", cell.Invoke(func(r *metrics.Registry) { registry = r })),
			cell.Term("leader", cell.Module("m", "Panics",
				cell.Metrics(func() *termMetrics {
					return &termMetrics{prometheus.NewCounter(prometheus.CounterOpts{Name: "stays_total"})}
				}),
				cell.Provide(func(r prometheus.Registerer, h health.Reporter, m *termMetrics) *middle {
					n := b.count("m")
					m.Stays.Inc()
					r.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: fmt.Sprint("goes_", n)}))
					h.Child(fmt.Sprint("part", n)).OK("")
					return &middle{n}
				}),
				cell.Invoke(func(g job.Group, v *middle) {
					g.Add(fmt.Sprint("added", v.n), job.OneShot(func(ctx context.Context) error { <-ctx.Done(); return nil }))
				}),
				cell.Job("panics", func(*middle) job.Job { return panicking(b.told) }))))
	}, func(b *bubble) {
		gathered := func() (list []string) {
			families, err := registry.Gather()
			if err != nil {
				b.t.Error(err)
			}
			for _, f := range families {
				if name := f.GetName(); strings.HasPrefix(name, "goes_") || strings.HasPrefix(name, "stays_") { // those of the module
					list = append(list, fmt.Sprint(name, f.Metric[0].GetCounter().GetValue()))
				}
			}
			return list
		}
		b.enter()
		b.told <- "whoops"
		synctest.Wait()
		b.wantHealth("OK m.job-added2", "OK m.job-panics", "OK m.part2", "OK m.start: rebuilt")
		if diff := cmp.Diff([]string{"goes_20", "stays_total2"}, gathered()); diff != "" {
			b.t.Error(diff)
		}
		b.leave()
		b.wantHealth()
		if diff := cmp.Diff([]string{"stays_total2"}, gathered()); diff != "" {
			b.t.Error(diff)
		}
	})
}

func TestAPanicWhileLeaving(t *testing.T) {
	inBubble(t, func(b *bubble) cell.Cell {
		return cell.Term("leader", cell.Module("m", "Panics when told to stop", cell.Provide(func() *middle { return &middle{b.count("m")} }),
			cell.Job("x", func(*middle) job.Job {
				return job.OneShot(func(ctx context.Context) error { <-ctx.Done(); panic("while leaving") })
			})))
	}, func(b *bubble) {
		for i := range 3 {
			b.enter()
			b.leave()
			synctest.Wait()
			if b.of("m") != i+1 {
				b.t.Error("it was rebuilt while leaving")
			}
			b.wantHealth()
			if got := strings.Count(b.log.String(), "while leaving"); got != i+1 {
				b.t.Errorf("the panic is logged %d times", got)
			}
		}
	})
}

func TestAHookThatPanicsWhileLeaving(t *testing.T) {
	inBubble(t, func(b *bubble) cell.Cell {
		return cell.Term("leader", cell.Module("m", "Panics when told to stop", cell.Provide(func() *middle { return &middle{b.count("m")} }),
			cell.Hook("x", func(*middle) lifecycle.Hook {
				return lifecycle.Funcs{OnStop: func(context.Context) error { panic("while leaving") }}
			})))
	}, func(b *bubble) {
		b.enter()
		if err := b.term.Leave(b.t.Context()); !errors.As(err, new(*lifecycle.PanicError)) {
			b.t.Error(err)
		}
		b.wantHealth()
		b.enter()
		if err := b.term.Leave(b.t.Context()); err == nil || b.of("m") != 2 {
			b.t.Error(err)
		}
	})
}

func TestLeavingInterruptsARebuild(t *testing.T) {
	inBubble(t, func(b *bubble) cell.Cell {
		return cell.Term("leader", cell.Module("m", "Panics, and then takes its time", cell.Provide(func() *middle { return &middle{b.count("m")} }),
			cell.Hook("x", func(v *middle) lifecycle.Hook {
				return lifecycle.Funcs{OnStart: func(ctx context.Context) error {
					if v.n > 1 {
						<-ctx.Done()
						b.add("interrupted")
					}
					return ctx.Err()
				}}
			}), cell.Job("panics", func(*middle) job.Job { return panicking(b.told) })))
	}, func(b *bubble) {
		b.enter()
		b.told <- "whoops"
		synctest.Wait()
		began := time.Now()
		b.leave()
		if took := time.Since(began); took > 0 {
			b.t.Error("leaving took", took)
		}
		b.want("interrupted")
		b.wantHealth()
		pass(time.Hour)
		if b.of("m") != 2 {
			b.t.Error("it was rebuilt after the term")
		}
	})
}

// A job that panics because it is stopped for a rebuild does not cause another.
func TestAPanicWhileBeingStoppedForARebuild(t *testing.T) {
	inBubble(t, func(b *bubble) cell.Cell {
		return cell.Term("leader", cell.Module("m", "Panics, also when told to stop", cell.Provide(func() *middle { return &middle{b.count("m")} }),
			cell.Job("stops", func(v *middle) job.Job {
				return job.OneShot(func(ctx context.Context) error {
					<-ctx.Done()
					if v.n == 1 {
						panic("while stopping")
					}
					return nil
				})
			}), cell.Job("panics", func(*middle) job.Job { return panicking(b.told) })))
	}, func(b *bubble) {
		b.enter()
		b.told <- "whoops"
		synctest.Wait()
		if b.of("m") != 2 {
			b.t.Error(b.counts)
		}
		if strings.Count(b.log.String(), "while stopping") != 1 || strings.Count(b.log.String(), "panic=whoops") != 1 {
			b.t.Error(b.log.String())
		}
		b.wantHealth("OK m.job-panics", "OK m.job-stops", "OK m.start: rebuilt")
		b.leave()
	})
}

// Leaving waits for what a rebuild is stopping: nothing of the term runs on.
func TestLeavingWaitsForWhatARebuildStops(t *testing.T) {
	inBubble(t, func(b *bubble) cell.Cell {
		return cell.Term("leader", cell.Module("m", "Panics, and takes its time to tidy up",
			cell.Job("tidies", func() job.Job {
				return job.OneShot(func(ctx context.Context) error {
					<-ctx.Done()
					time.Sleep(10 * time.Second)
					b.add("tidied up")
					return nil
				})
			}), cell.Job("panics", func() job.Job { return panicking(b.told) })))
	}, func(b *bubble) {
		b.enter()
		b.told <- "whoops"
		synctest.Wait() // the rebuild waits for the other job
		b.leave()
		b.want("tidied up")
	})
}

func TestLeavingInAHurryDoesNotWaitForWhatARebuildStops(t *testing.T) {
	var release chan struct{}
	inBubble(t, func(b *bubble) cell.Cell {
		release = make(chan struct{})
		return cell.Term("leader", cell.Module("m", "Panics and hangs",
			cell.Job("hangs", func() job.Job { return job.OneShot(func(context.Context) error { <-release; return nil }) }),
			cell.Job("panics", func() job.Job { return panicking(b.told) })))
	}, func(b *bubble) {
		b.enter()
		b.told <- "whoops"
		synctest.Wait()
		ctx, cancel := context.WithTimeout(b.t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_ = b.term.Leave(ctx) // what hangs was named by the rebuild
		if took := time.Since(began); took > time.Second+lifecycle.Grace {
			b.t.Error("leaving took", took)
		}
		if !strings.Contains(b.log.String(), "hook failed to stop") || !strings.Contains(b.log.String(), "m.job-hangs hangs") {
			b.t.Error(b.log.String())
		}
		close(release)
		synctest.Wait()
		b.wantHealth()
	})
}

func TestEnteringWhileAModulePanics(t *testing.T) {
	inBubble(t, func(b *bubble) cell.Cell {
		return cell.Term("leader",
			cell.Module("m", "Panics at once", cell.Provide(func() *middle { return &middle{b.count("m")} }),
				cell.Job("panics", func(v *middle) job.Job {
					return job.OneShot(func(ctx context.Context) error {
						if v.n == 1 {
							panic("whoops")
						}
						<-ctx.Done()
						return nil
					})
				})),
			cell.Module("slow", "Takes its time", cell.Hook("x", func() lifecycle.Hook {
				return lifecycle.Funcs{OnStart: func(context.Context) error { time.Sleep(10 * time.Second); return nil }}
			})))
	}, func(b *bubble) {
		b.enter()
		if b.of("m") != 2 {
			b.t.Error(b.counts)
		}
		b.wantHealth("OK m.job-panics", "OK m.start: rebuilt")
		b.leave()
	})
}

// In the process.

func TestAProcessModuleThatNobodyHoldsIsRebuilt(t *testing.T) {
	inBubble(t, func(b *bubble) cell.Cell {
		return cell.Set(cell.Term("leader"),
			cell.Module("m", "Panics", cell.Provide(func() *middle { return &middle{b.count("m")} }),
				cell.Hook("x", func(v *middle) lifecycle.Hook { return b.hook(fmt.Sprint("m", v.n)) }),
				cell.Job("panics", func(*middle) job.Job { return panicking(b.told) })),
			cell.Module("aside", "Does not", cell.Hook("x", func() lifecycle.Hook { return b.hook("aside") })))
	}, func(b *bubble) {
		b.diary.wantSorted(b.t, "start m1", "start aside")
		b.told <- "whoops"
		synctest.Wait()
		b.want("stop m1", "start m2")
		for range 2 {
			b.told <- "whoops"
			synctest.Wait()
		}
		b.want("stop m2", "start m3", "stop m3")
		b.wantHealth("Degraded m.start: failed 3 times in a row; next try in 1s: panic: whoops (runtime/hive_test/supervisor_test.go)")
		pass(time.Second)
		b.want("start m4")
	})
}

// What stands outside modules has no module to itself, and shares none of what
// the hive offers with the others.
func TestAPanicOutsideModules(t *testing.T) {
	inBubble(t, func(b *bubble) cell.Cell {
		return cell.Set(
			cell.Job("panics", func(*health.Tree) job.Job { return panicking(b.told) }),
			cell.Term("leader", cell.Module("duty", "Works", cell.Hook("x", func(tree *health.Tree, shutdown lifecycle.Shutdown) lifecycle.Hook {
				if tree == nil || shutdown == nil {
					b.t.Error("what the hive offers is gone")
				}
				return b.hook("duty")
			}))))
	}, func(b *bubble) {
		for range 3 { // it is down now, for a while
			b.told <- "whoops"
			synctest.Wait()
		}
		b.enter()
		b.want("start duty")
		b.leave()
	})
}

// Values that others hold for good stay: only the jobs run again.
func TestAProcessModuleThatOthersHold(t *testing.T) {
	for _, held := range []string{"in the process", "in a term", "by its own part in a term"} {
		t.Run(held, func(t *testing.T) {
			user := cell.Module("user", "Holds it", cell.Hook("x", func(*middle) lifecycle.Hook { return nil }))
			inBubble(t, func(b *bubble) cell.Cell {
				parts := []cell.Cell{
					cell.ProvideProcess(func(g job.Group) *middle {
						n := b.count("built")
						g.Add("added", job.OneShot(func(ctx context.Context) error {
							b.count("added")
							b.add(fmt.Sprint("added job of ", n))
							<-ctx.Done()
							return ctx.Err()
						}))
						g.Add("panics", panicking(b.told))
						return &middle{n}
					})}
				switch held {
				case "in the process":
					return cell.Set(cell.Term("leader"), user, cell.Module("m", "Panics", append(parts,
						cell.Hook("x", func(*middle) lifecycle.Hook { return b.hook("m") }),
						cell.Job("declared", func(*middle) job.Job {
							return job.Timer(func(context.Context) error { b.count("declared"); return nil }, time.Hour)
						}))...))
				case "in a term":
					return cell.Set(cell.Term("leader", user), cell.Module("m", "Panics", parts...))
				}
				return cell.Term("leader", cell.Module("m", "Panics", append(parts, cell.Hook("x", func(*middle) lifecycle.Hook { return b.hook("m") }))...))
			}, func(b *bubble) {
				synctest.Wait()
				b.take()
				b.told <- "whoops"
				synctest.Wait()
				b.want("added job of 1")
				if b.of("built") != 1 || b.of("added") != 2 || held == "in the process" && b.of("declared") != 2 {
					b.t.Error(b.counts)
				}
			})
		})
	}
}

// The same holds when a job of theirs panics because it is stopped.
func TestAPanicOfAHeldProcessModuleWhileItsJobsStop(t *testing.T) {
	inBubble(t, func(b *bubble) cell.Cell {
		return cell.Set(cell.Term("leader"),
			cell.Module("m", "Panics twice", cell.Provide(func() *middle { return &middle{} }),
				cell.Job("stops", func(*middle) job.Job {
					return job.OneShot(func(ctx context.Context) error {
						n := b.count("stops")
						<-ctx.Done()
						if n == 1 {
							panic("while stopping")
						}
						return nil
					})
				}),
				cell.Job("panics", func(*middle) job.Job { return panicking(b.told) })),
			cell.Module("user", "Holds it", cell.Hook("x", func(*middle) lifecycle.Hook { return nil })))
	}, func(b *bubble) {
		synctest.Wait()
		b.told <- "whoops"
		synctest.Wait()
		if b.of("stops") != 2 || strings.Count(b.log.String(), "while stopping") != 1 {
			b.t.Error(b.counts, b.log.String())
		}
	})
}

func TestPausesOfHeldProcessModules(t *testing.T) {
	inBubble(t, func(b *bubble) cell.Cell {
		counting := func(what string, told <-chan string) job.Job {
			return job.OneShot(func(ctx context.Context) error {
				b.count(what)
				select {
				case text := <-told:
					panic(text)
				case <-ctx.Done():
					return nil
				}
			})
		}
		return cell.Set(cell.Term("leader"),
			cell.Module("bad", "Panics again and again", cell.Provide(func() *middle { return &middle{} }), cell.Job("x", func(*middle) job.Job { return counting("bad", b.told) })),
			cell.Module("once", "Panics once", cell.Provide(func() *top { return &top{} }), cell.Job("x", func(*top) job.Job { return counting("once", b.other) })),
			cell.Module("user", "Holds both", cell.Hook("x", func(*middle, *top) lifecycle.Hook { return nil })))
	}, func(b *bubble) {
		synctest.Wait()
		for range 3 {
			b.told <- "whoops"
			synctest.Wait()
		}
		b.other <- "whoops"
		synctest.Wait()
		if b.of("bad") != 3 || b.of("once") != 2 {
			b.t.Error(b.counts)
		}
		pass(time.Second)
		if b.of("bad") != 4 || b.of("once") != 2 {
			b.t.Error(b.counts)
		}
	})
}

// A leader that panics cannot leave its term any more; the runtime does.
func TestAPanicOfTheOneWhoEnteredEndsTheTerm(t *testing.T) {
	for _, held := range []bool{false, true} {
		t.Run(fmt.Sprint("held ", held), func(t *testing.T) {
			inBubble(t, func(b *bubble) cell.Cell {
				cells := []cell.Cell{
					cell.Module("elect", "Enters and panics", cell.Provide(func() *middle { return &middle{b.count("elect")} }),
						cell.Job("campaign", func(l leader, _ *middle) job.Job {
							return job.OneShot(func(ctx context.Context) error {
								if err := l.Term.Enter(ctx); err != nil {
									return err
								}
								defer func() {
									if ctx.Err() != nil {
										_ = l.Term.Leave(context.WithoutCancel(ctx))
									}
								}()
								select {
								case text := <-b.told:
									panic(text)
								case <-ctx.Done():
									return nil
								}
							})
						})),
					cell.Term("leader", cell.Module("duty", "Works", cell.Hook("x", func() lifecycle.Hook { return b.hook("duty") }))),
				}
				if held {
					cells = append(cells, cell.Module("status", "Holds a value", cell.Hook("x", func(*middle) lifecycle.Hook { return nil })))
				}
				return cell.Set(cells...)
			}, func(b *bubble) {
				synctest.Wait()
				b.want("start duty")
				for range 2 {
					b.told <- "whoops"
					synctest.Wait()
					b.want("stop duty", "start duty")
				}
				b.told <- "whoops"
				synctest.Wait()
				b.want("stop duty") // and not before the pause is over
				pass(time.Second)
				b.want("start duty")
				if want := map[bool]int{false: 4, true: 1}[held]; b.of("elect") != want {
					b.t.Error(b.counts)
				}
			})
		})
	}
}

// Not in a bubble: these look for races.

func TestEnteringWhileTheProcessRebuilds(t *testing.T) {
	var term lifecycle.Term
	told := make(chan string)
	var built atomic.Int32
	h := started(t, cell.Set(entering(&term),
		cell.Module("m", "Panics", cell.Provide(func() *middle { built.Add(1); return &middle{} }),
			cell.Hook("x", func(*middle) lifecycle.Hook { return nil }), cell.Job("panics", func(*middle) job.Job { return panicking(told) })),
		cell.Module("client", "Is held", cell.Provide(func() *client { return &client{} }), cell.Hook("x", func(*client) lifecycle.Hook { return nil })),
		cell.Term("leader", cell.Module("duty", "Works", cell.Provide(func(*client) *store { return &store{} }), cell.Hook("x", func(*store) lifecycle.Hook { return nil }),
			cell.Job("y", func(*store) job.Job { return job.OneShot(func(ctx context.Context) error { <-ctx.Done(); return nil }) }))),
	), hive.RebuildBackoff(time.Microsecond, 10*time.Microsecond))
	done := make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() {
		for {
			select {
			case told <- "whoops":
			case <-done:
				return
			}
		}
	})
	others.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				if err := h.Graph().WriteJSON(io.Discard); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for range 100 {
		mustEnter(t, term)
		mustLeave(t, term)
	}
	before := built.Load()
	waittest.Until(t, "the process rebuilds", func() bool { return built.Load() > before+10 })
	close(done)
	others.Wait()
}

func TestPanicsAllOverATerm(t *testing.T) {
	var term lifecycle.Term
	var tree *health.Tree
	var rounds atomic.Int32
	panics := func() job.Job {
		return job.OneShot(func(ctx context.Context) error {
			if rounds.Add(1)%3 == 0 {
				panic("whoops")
			}
			<-ctx.Done()
			return nil
		})
	}
	fails := func(context.Context) error {
		if rounds.Add(1)%5 == 0 {
			return errBroken
		}
		return nil
	}
	started(t, cell.Set(entering(&term), watching(&tree), cell.Term("leader",
		cell.Module("a", "Panics", cell.Provide(func() *base { return nil }), cell.Job("x", func(*base) job.Job { return panics() })),
		cell.Module("b", "Fails", cell.Provide(func(*base) *middle { return nil }), cell.Hook("x", func(*middle) lifecycle.Hook { return lifecycle.Funcs{OnStart: fails} })),
		cell.Module("c", "Panics, too", cell.Provide(func(*middle) *top { return nil }), cell.Job("x", func(*top) job.Job { return panics() })),
		cell.Module("d", "Fails to build", cell.Provide(func(*top) (*value, error) { return nil, fails(nil) }), cell.Job("x", func(*value) job.Job { return panics() })),
	)), hive.RebuildBackoff(time.Microsecond, 50*time.Microsecond))
	for range 100 {
		mustEnter(t, term)
		before := rounds.Load()
		waittest.Until(t, "there are rounds", func() bool { return rounds.Load() > before+2 || len(tree.Degraded()) == 0 })
		mustLeave(t, term)
		wantHealth(t, tree)
	}
}
