// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
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

// client stands for what lives in the process and is used in terms.
type client struct{ built int }

// store stands for what is built afresh in each term.
type store struct {
	built  int
	client *client
}

// memory stands for what lasts.
type memory struct{ built int }

// termMetrics are metrics of a module in a term.
type termMetrics struct{ Stays prometheus.Counter }

// census counts what is built.
type census struct {
	mu     sync.Mutex
	counts map[string]int
}

func (c *census) count(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	c.counts[what]++
	return c.counts[what]
}

func (c *census) of(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[what]
}

func mustEnter(t *testing.T, term lifecycle.Term) {
	t.Helper()
	if err := term.Enter(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func mustLeave(t *testing.T, term lifecycle.Term) {
	t.Helper()
	if err := term.Leave(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestTermsAreBuiltAfreshAtEveryEntry(t *testing.T) {
	var d diary
	var n census
	var term lifecycle.Term
	var seen []*store
	var memories []*memory
	started(t, cell.Set(
		entering(&term),
		cell.Module("client", "Lives in the process", cell.Provide(func() *client { return &client{n.count("client")} }),
			cell.Hook("dial", func(*client) lifecycle.Hook { return d.hook("client") })),
		cell.Term("leader",
			cell.Module("store", "Lives in the term",
				cell.Provide(func(c *client) *store { return &store{n.count("store"), c} }),
				cell.Hook("watch", func(*store) lifecycle.Hook { return d.hook("store") })),
			cell.Module("duty", "Uses both",
				cell.ProvideProcess(func(*client) *memory { return &memory{n.count("memory")} }),
				cell.Invoke(func(s *store, m *memory) { seen = append(seen, s); memories = append(memories, m) }),
				cell.Hook("work", func(*store) lifecycle.Hook { return d.hook("duty") }))),
	))
	d.want(t, "start client")
	for range 3 {
		mustEnter(t, term)
		d.want(t, "start store", "start duty")
		mustLeave(t, term)
		d.want(t, "stop duty", "stop store")
	}
	if diff := cmp.Diff(map[string]int{"client": 1, "store": 3, "memory": 1}, n.counts); diff != "" {
		t.Error(diff)
	}
	for i := range 3 {
		if seen[i].built != i+1 || seen[i].client != seen[0].client || memories[i] != memories[0] {
			t.Errorf("entry %d: %+v, %+v", i, seen[i], memories[i])
		}
	}
}

func TestAThousandTermsLeaveNothingBehind(t *testing.T) {
	var term lifecycle.Term
	var tree *health.Tree
	var registry *metrics.Registry
	h := started(t, cell.Set(
		entering(&term), watching(&tree),
		cell.Module("registry", "Gives the test the metrics", cell.Invoke(func(r *metrics.Registry) { registry = r })),
		cell.Term("leader",
			cell.Module("duty", "Has everything",
				cell.Metrics(func() *termMetrics {
					return &termMetrics{prometheus.NewCounter(prometheus.CounterOpts{Name: "stays_total", Help: "Stays"})}
				}),
				cell.Provide(func(r prometheus.Registerer) *store {
					r.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "goes", Help: "Goes"}))
					return &store{}
				}),
				cell.Hook("hook", func(_ *store, r health.Reporter) lifecycle.Hook {
					return lifecycle.Funcs{OnStart: func(context.Context) error { r.Child("deep").Child("down").OK("here"); return nil }}
				}),
				cell.Job("job", func(m *termMetrics, g job.Group) job.Job {
					g.Add("early", job.Timer(func(context.Context) error { return nil }, time.Hour))
					return job.OneShot(func(ctx context.Context) error {
						m.Stays.Inc()
						g.Add("added", job.OneShot(func(ctx context.Context) error { <-ctx.Done(); return nil }))
						<-ctx.Done()
						return ctx.Err()
					})
				}))),
	), hive.RebuildBackoff(time.Millisecond, time.Millisecond))
	count := func() string {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		stays := 0.0
		var names []string
		for _, f := range families {
			names = append(names, f.GetName())
			if f.GetName() == "stays_total" {
				stays = f.Metric[0].Counter.GetValue()
			}
		}

		if stays == 0 {
			t.Error("a lasting metric was lost")
		}
		return fmt.Sprint(names, statuses(tree), len(registry.List()))
	}
	round := func() {
		mustEnter(t, term)
		mustLeave(t, term)
	}
	round()
	runtime.GC()
	goroutines, before := runtime.NumGoroutine(), count()
	var first runtime.MemStats
	runtime.ReadMemStats(&first)
	for range 1000 {
		round()
	}
	if after := count(); after != before || strings.Contains(after, "duty") || strings.Contains(after, "goes") || !strings.Contains(after, "stays_total") {
		t.Errorf("%s became %s", before, after)
	}
	waittest.Until(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= goroutines })
	if n := len(h.Graph().Nodes); n == 0 {
		t.Error("the graph is gone")
	}
	runtime.GC()
	var last runtime.MemStats
	runtime.ReadMemStats(&last)
	if grown := int64(last.HeapAlloc) - int64(first.HeapAlloc); grown > 1<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
}

func TestEnteringTwiceAndLeavingTwice(t *testing.T) {
	var d diary
	var term lifecycle.Term
	started(t, cell.Set(entering(&term), cell.Term("leader", cell.Module("duty", "Works", cell.Hook("x", func() lifecycle.Hook { return d.hook("duty") })))))
	mustLeave(t, term)
	mustEnter(t, term)
	if err := term.Enter(t.Context()); err == nil || err.Error() != "term leader is entered already; leave it first" {
		t.Error(err)
	}
	mustLeave(t, term)
	mustLeave(t, term)
	d.want(t, "start duty", "stop duty")
}

func TestEnteringFromAConstructorIsAnError(t *testing.T) {
	h := newHive(cell.Set(cell.Term("leader"), cell.Module("hasty", "Enters too early", cell.Invoke(func(l leader) error { return l.Term.Enter(context.Background()) }))))
	if err := h.Build(); err == nil || !strings.Contains(err.Error(), "term leader cannot be entered before the process is built") {
		t.Error(err)
	}
}

func TestEnterFailsWhenItsContextEndsFirst(t *testing.T) {
	var d diary
	var term lifecycle.Term
	var tree *health.Tree
	ctx, cancel := context.WithCancel(t.Context())
	interrupt := true
	started(t, cell.Set(entering(&term), watching(&tree), cell.Term("leader",
		cell.Module("a", "Starts", cell.Provide(func() *store { return &store{} }), cell.Hook("x", func(*store) lifecycle.Hook { return d.hook("a") }),
			cell.Invoke(func(r health.Reporter) { r.OK("") })),
		cell.Module("b", "Is interrupted", cell.Hook("x", func(*store) lifecycle.Hook {
			return lifecycle.Funcs{
				OnStart: func(ctx context.Context) error {
					if interrupt {
						cancel()
						<-ctx.Done()
					}
					return ctx.Err()
				},
				OnStop: func(context.Context) error { d.add("stop b"); return nil },
			}
		})),
		cell.Module("c", "Is not tried", cell.Hook("x", func(*store) lifecycle.Hook { return d.hook("c") }), cell.StartAfter("b", "to be late")),
		cell.Module("e", "Is not tried either", cell.Hook("x", func() lifecycle.Hook { return nil }), cell.Hook("y", func() lifecycle.Hook { return nil }), cell.StartAfter("b", "to be late")),
	)))
	if err := term.Enter(ctx); !errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), "entering term leader: ") || strings.Count(err.Error(), "starting ") > 2 {
		t.Error(err)
	}
	d.want(t, "start a", "stop a")
	wantHealth(t, tree)
	interrupt = false
	mustEnter(t, term)
	d.want(t, "start a", "start c")
	mustLeave(t, term)
	d.want(t, "stop c", "stop b", "stop a")
}

func TestEnterWithAContextThatHasEnded(t *testing.T) {
	var d diary
	var term lifecycle.Term
	started(t, cell.Set(entering(&term), cell.Term("leader", cell.Module("a", "Does not start", cell.Hook("x", func() lifecycle.Hook { return d.hook("a") })))))
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errBroken)
	if err := term.Enter(ctx); !errors.Is(err, errBroken) {
		t.Error(err)
	}
	d.want(t)
	mustEnter(t, term)
}

func TestTheHiveLeavesWhatIsEntered(t *testing.T) {
	var d diary
	var term lifecycle.Term
	h := newHive(cell.Set(entering(&term),
		cell.Module("client", "Lives in the process", cell.Hook("x", func() lifecycle.Hook { return d.hook("process") })),
		cell.Term("leader", cell.Module("duty", "Works", cell.Hook("x", func() lifecycle.Hook { return d.hook("duty") })))))
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustEnter(t, term)
	if err := h.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.want(t, "start process", "start duty", "stop process", "stop duty")
}

func TestAFailedStartLeavesWhatItEntered(t *testing.T) {
	var d diary
	h := newHive(cell.Set(
		cell.Module("elect", "Enters, and does not leave", cell.Provide(func() *value { return nil }), cell.Hook("x", func(l leader, _ *value) lifecycle.Hook { return lifecycle.Funcs{OnStart: l.Term.Enter} })),
		cell.Module("fails", "Fails afterwards", cell.Hook("x", func(*value) lifecycle.Hook {
			return lifecycle.Funcs{OnStart: func(context.Context) error { return errBroken }}
		})),
		cell.Term("leader", cell.Module("duty", "Works", cell.Hook("x", func() lifecycle.Hook { return d.hook("duty") })))))
	if err := h.Start(t.Context()); !errors.Is(err, errBroken) {
		t.Error(err)
	}
	d.want(t, "start duty", "stop duty")
}

// What the term uses in the process is there for as long as the term is.
func TestTheTermIsLeftBeforeWhatItUsesStops(t *testing.T) {
	var d diary
	h := newHive(cell.Set(
		cell.Module("elect", "Enters and leaves", cell.Hook("x", func(l leader) lifecycle.Hook { return lifecycle.Funcs{OnStart: l.Term.Enter, OnStop: l.Term.Leave} })),
		cell.Term("leader", cell.Module("duty", "Works", cell.Hook("x", func(*client) lifecycle.Hook { return d.hook("duty") }))),
		cell.Module("client", "Lives in the process", cell.Provide(func() *client { return nil }), cell.Hook("x", func(*client) lifecycle.Hook { return d.hook("client") }))))
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.want(t, "start client", "start duty", "stop duty", "stop client")
}

func TestLeaveTellsWhatFailedToStop(t *testing.T) {
	var d diary
	var term lifecycle.Term
	fail := errBroken
	started(t, cell.Set(entering(&term), cell.Term("leader",
		cell.Module("a", "Stops", cell.Provide(func() *store { return nil }), cell.Hook("x", func(*store) lifecycle.Hook { return d.hook("a") })),
		cell.Module("b", "Does not", cell.Hook("x", func(*store) lifecycle.Hook {
			return lifecycle.Funcs{OnStop: func(context.Context) error { return fail }}
		})))))
	mustEnter(t, term)
	if err := term.Leave(t.Context()); !errors.Is(err, errBroken) || err.Error() != "leaving term leader: stopping b.hook-x: broken" {
		t.Error(err)
	}
	fail = nil
	mustEnter(t, term)
	d.want(t, "start a", "stop a", "start a")
}

func TestAHookThatHangsInATerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		var term lifecycle.Term
		var tree *health.Tree
		release := make(chan struct{})
		h := newHive(cell.Set(entering(&term), watching(&tree), cell.Term("leader",
			cell.Module("a", "Stops", cell.Hook("x", func() lifecycle.Hook { return d.hook("a") })),
			cell.Module("b", "Hangs", cell.Hook("x", func(r health.Reporter) lifecycle.Hook {
				return lifecycle.Funcs{OnStop: func(context.Context) error {
					<-release
					r.Degraded("far too late", nil)
					return nil
				}}
			})))))
		if err := h.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		mustEnter(t, term)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		err := term.Leave(ctx)
		hang := new(lifecycle.HangError)
		if !errors.As(err, &hang) || hang.Step != "b.hook-x" || !strings.Contains(hang.Stack, "TestAHookThatHangsInATerm") {
			t.Error(err)
		}
		if took := time.Since(began); took != time.Second+lifecycle.Grace {
			t.Error(took)
		}
		mustEnter(t, term) // life goes on
		d.want(t, "start a", "stop a", "start a")
		close(release)
		synctest.Wait()
		wantHealth(t, tree)
		if err := h.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestHooksOfTermsHaveTheProcessWideLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waits := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		var d diary
		var term lifecycle.Term
		var tree *health.Tree
		h := newHive(cell.Set(entering(&term), watching(&tree), cell.Term("leader",
			cell.Module("slow", "Does not start", cell.Hook("x", func() lifecycle.Hook { return lifecycle.Funcs{OnStart: waits} })),
			cell.Module("own", "Has a limit of its own", cell.Hook("x", func() lifecycle.Hook { return lifecycle.Funcs{OnStart: waits} }, cell.StartTimeout(time.Second))),
			cell.Module("late", "Does not stop", cell.Hook("x", func() lifecycle.Hook { return lifecycle.Funcs{OnStop: waits} })),
			cell.Module("later", "Does not stop either", cell.Hook("x", func() lifecycle.Hook { return lifecycle.Funcs{OnStop: waits} }, cell.StopTimeout(time.Hour))),
			cell.Module("fine", "Does both", cell.Hook("x", func() lifecycle.Hook { return d.hook("fine") })))),
			hive.StartStopTimeouts(time.Minute, 2*time.Minute), hive.RebuildBackoff(24*time.Hour, 24*time.Hour))
		if err := h.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		mustEnter(t, term)
		if took := time.Since(began); took != time.Minute {
			t.Error("entering took", took)
		}
		wantHealth(t, tree,
			"Degraded own.start: failed 1 times in a row; next try in 24h0m0s: starting own.hook-x: context deadline exceeded (start of own.hook-x took longer than its 1s)",
			"Degraded slow.start: failed 1 times in a row; next try in 24h0m0s: starting slow.hook-x: context deadline exceeded (start of slow.hook-x took longer than its 1m0s)")
		d.want(t, "start fine")
		began = time.Now()
		if err := term.Leave(t.Context()); err == nil || !strings.Contains(err.Error(), "stop of late.hook-x took longer than its 2m0s") || !strings.Contains(err.Error(), "stop of later.hook-x took longer than its 1h0m0s") {
			t.Error(err)
		}
		if took := time.Since(began); took != time.Hour {
			t.Error("leaving took", took)
		}
		d.want(t, "stop fine")
		if err := h.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestAJobThatHangsInATermIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var term lifecycle.Term
		var tree *health.Tree
		release := make(chan struct{})
		h := newHive(cell.Set(entering(&term), watching(&tree), cell.Term("leader",
			cell.Module("m", "Hangs", cell.Job("x", func() job.Job { return job.OneShot(func(context.Context) error { <-release; return nil }) })))))
		if err := h.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		mustEnter(t, term)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		hang := new(lifecycle.HangError)
		if err := term.Leave(ctx); !errors.As(err, &hang) || hang.Step != "m.job-x" || !strings.Contains(hang.Stack, "TestAJobThatHangsInATermIsNamed") {
			t.Error(err)
		}
		close(release)
		synctest.Wait()
		wantHealth(t, tree)
		if err := h.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestCallsOfAHandleWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		var term lifecycle.Term
		h := newHive(cell.Set(entering(&term), cell.Term("leader", cell.Module("slow", "Takes its time", cell.Hook("x", func() lifecycle.Hook {
			return lifecycle.Funcs{OnStart: func(context.Context) error { time.Sleep(time.Minute); d.add("start"); return nil }, OnStop: func(context.Context) error { d.add("stop"); return nil }}
		})))))
		if err := h.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		go func() { _ = term.Enter(t.Context()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := term.Leave(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "term leader is still being entered or left") {
			t.Error(err)
		}
		mustLeave(t, term)
		d.want(t, "start", "stop")
		if err := h.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A change of the leader is not a line for each hook, but for each that is slow.
func TestSlowHooksOfTermsAreLoggedAtInfo(t *testing.T) {
	var out logtest.Buffer
	var term lifecycle.Term
	h := hive.New("test", cell.Set(entering(&term), cell.Term("leader", cell.Module("duty", "Works",
		cell.Hook("x", func() lifecycle.Hook { return nil }),
		cell.Hook("y", func() lifecycle.Hook {
			return lifecycle.Funcs{OnStart: func(context.Context) error { time.Sleep(150 * time.Millisecond); return nil }} // the hook is slow
		})))), hive.LogTo(&out), noEnvironment)
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustEnter(t, term)
	if err := h.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all := strings.Count(out.String(), `level=info msg="hook done"`); all != 1 || !strings.Contains(out.String(), `level=info msg="hook done" hook=duty.hook-y phase=start`) {
		t.Error(out.String())
	}
}

func TestTryTerms(t *testing.T) {
	var d diary
	var tree *health.Tree
	broken := false
	h := newHive(cell.Set(watching(&tree),
		cell.Module("elect", "Would enter", cell.Hook("x", func(leader) lifecycle.Hook { return d.hook("elect") })),
		cell.Term("leader", cell.Module("duty", "Works", cell.Provide(func(r health.Reporter) (*store, error) {
			r.OK("")
			if broken {
				return nil, errBroken
			}
			return &store{}, nil
		}), cell.Hook("x", func(*store) lifecycle.Hook { return d.hook("duty") }), cell.Job("y", func(*store) job.Job { return job.OneShot(func(context.Context) error { d.add("job"); return nil }) })))))
	if err := h.TryTerms(); err != nil {
		t.Error(err)
	}
	broken = true
	if err := h.TryTerms(); !errors.Is(err, errBroken) {
		t.Error(err)
	}
	d.want(t)
	wantHealth(t, tree)
}

func TestTwoTermsAtOnce(t *testing.T) {
	type standby struct {
		cell.In
		Term lifecycle.Term `name:"standby"`
	}
	var d diary
	var one, two lifecycle.Term
	started(t, cell.Set(entering(&one), cell.Module("other", "Gives the test the other handle", cell.Invoke(func(s standby) { two = s.Term })),
		cell.Term("leader", cell.Module("a", "Works", cell.Provide(func() *store { return &store{built: 1} }), cell.Hook("x", func(s *store) lifecycle.Hook { return d.hook(fmt.Sprint("a", s.built)) }))),
		cell.Term("standby", cell.Module("b", "Works", cell.Provide(func() *store { return &store{built: 2} }), cell.Hook("x", func(s *store) lifecycle.Hook { return d.hook(fmt.Sprint("b", s.built)) })))))
	mustEnter(t, one)
	mustEnter(t, two)
	mustLeave(t, one)
	mustLeave(t, two)
	d.want(t, "start a1", "start b2", "stop a1", "stop b2")
}

func TestScopeKnowsItsTerm(t *testing.T) {
	var term lifecycle.Term
	var scopes []cell.ModuleInfo
	started(t, cell.Set(entering(&term),
		cell.Module("p", "Is in the process", cell.Invoke(func(s cell.ModuleInfo, _ *slog.Logger) { scopes = append(scopes, s) })),
		cell.Term("leader", cell.Module("m", "Is in the term", cell.Invoke(func(s cell.ModuleInfo) { scopes = append(scopes, s) })))))
	mustEnter(t, term)
	if want := []cell.ModuleInfo{{ID: "p", Title: "Is in the process"}, {ID: "m", Title: "Is in the term", Term: "leader"}}; !slices.Equal(scopes, want) {
		t.Errorf("%+v", scopes)
	}
}
