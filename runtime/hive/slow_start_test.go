// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
	"github.com/skep-operator/skep/runtime/logging/logtest"
)

// A hook that takes long to start is degraded until it has started, in the process and in a term.
func TestASlowStartIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tree *health.Tree
		var terms []lifecycle.Term
		slow := func() lifecycle.Hook {
			return lifecycle.Funcs{OnStart: func(context.Context) error { time.Sleep(20 * time.Second); return nil }}
		}
		log := &logtest.Buffer{}
		h := hive.New("test", cell.Set(
			cell.Invoke(func(t *health.Tree) { tree = t }),
			cell.Module("enterer", "Has the term", cell.Invoke(func(l leader) { terms = append(terms, l.Term) })),
			cell.Module("process", "Starts slowly", cell.Hook("dial", slow)),
			cell.Term("leader", cell.Module("term", "Starts slowly, too", cell.Hook("dial", slow)))),
			hive.LogTo(log), noEnvironment)
		degraded := func() string {
			var ids []string
			for _, s := range tree.Degraded() {
				ids = append(ids, s.ID+" "+s.Message)
			}
			return strings.Join(ids, ", ")
		}
		expect := func(id string, start func(context.Context) error) {
			t.Helper()
			started := make(chan error, 1)
			go func() { started <- start(t.Context()) }()
			time.Sleep(4 * time.Second)
			if got := degraded(); got != "" {
				t.Errorf("after 4 seconds %s is degraded", got)
			}
			time.Sleep(4 * time.Second)
			if got, want := degraded(), id+" is starting for more than 5s"; got != want {
				t.Errorf("after 8 seconds: %q, want %q", got, want)
			}
			if err := <-started; err != nil {
				t.Fatal(err)
			}
			if got := degraded(); got != "" {
				t.Errorf("it has started, and %s is degraded", got)
			}
		}
		if err := h.Build(); err != nil {
			t.Fatal(err)
		}
		expect("process.hook-dial", h.Start)
		expect("term.hook-dial", terms[0].Enter)
		if n := log.Count("level=warning", "hook is starting for long"); n != 2 {
			t.Errorf("%d warnings:\n%s", n, log)
		}
		if err := h.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// When the time for stopping is over, only the job that does not stop is named, not those behind it that were not
// told before.
func TestOnlyTheJobThatDoesNotStopIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		deaf := func(*value) job.Job {
			return job.OneShot(func(context.Context) error { <-release; return nil })
		}
		prompt := func(*value) job.Job {
			return job.OneShot(func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(100 * time.Millisecond) // what it has begun
				return ctx.Err()
			})
		}
		h := newHive(cell.Set(
			cell.Module("crds", "Stops when it is told", cell.Provide(func() *value { return &value{} }), cell.Job("register", prompt)),
			cell.Module("fjord", "Does not hear", cell.Job("run", deaf))), hive.StartStopTimeouts(time.Minute, 10*time.Second))
		if err := h.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		err := h.Stop(context.Background())
		if err == nil || !strings.Contains(err.Error(), "fjord.job-run hangs") || strings.Contains(err.Error(), "crds") {
			t.Errorf("%v", err)
		}
		close(release)
		synctest.Wait()
	})
}
