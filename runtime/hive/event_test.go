// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// eventLog has a line for each event, in order.
type eventLog struct {
	mu    sync.Mutex
	lines []string
}

func (l *eventLog) add(e hive.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := strings.Join(slices.DeleteFunc([]string{string(e.Kind), e.Term, e.Module, e.Name, e.Action}, func(s string) bool { return s == "" }), " ")
	if e.Err != nil {
		first, _, _ := strings.Cut(e.Err.Error(), "\n")
		line += ": " + lineNumber.ReplaceAllString(first, "$1")
	}
	l.lines = append(l.lines, line)
}

// since are the lines from the first one of a kind to the end.
func (l *eventLog) since(kind hive.EventKind) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.lines, func(s string) bool { return strings.HasPrefix(s, string(kind)) })
	return slices.Clone(l.lines[max(i, 0):])
}

type widget struct{}

func TestAnEmbedderSubscribesToEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events eventLog
		var term lifecycle.Term
		runs := 0
		h := hive.New("test", cell.Set(
			entering(&term),
			cell.Term("leader", cell.Module("duty", "Works",
				cell.ProvidePrivate(func() *widget { return &widget{} }),
				cell.Job("work", func(*widget) job.Job {
					return job.OneShot(func(context.Context) error {
						time.Sleep(time.Millisecond) // the start of the job is an event of its own
						switch runs++; runs {
						case 1:
							return errors.New("not yet")
						case 2:
							panic("whoops")
						}
						return nil
					}, job.Retry(time.Second, time.Second))
				})))), hive.LogTo(io.Discard), hive.OnEvent(events.add))
		if err := h.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := term.Enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if err := term.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := h.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		all := strings.Join(events.since(hive.EventDeclared), "\n")
		for _, kind := range []hive.EventKind{hive.EventDeclared, hive.EventConfigured, hive.EventSelected, hive.EventValidated,
			hive.EventBuilt, hive.EventConstructed, hive.EventHookStarted, hive.EventStarted, hive.EventHookStopped, hive.EventStopped} {
			if !strings.Contains("\n"+all+"\n", "\n"+string(kind)) {
				t.Errorf("no event %s in\n%s", kind, all)
			}
		}
		got := slices.DeleteFunc(events.since(hive.EventStarted), func(s string) bool { return strings.HasPrefix(s, "constructed") })
		want := []string{
			"started",
			"built leader",
			"hookStarted leader duty duty.job-work",
			"termEntered leader",
			"jobFailed leader duty work will try again: not yet",
			"moduleFailed leader duty: panic: whoops (runtime/hive_test/event_test.go)",
			"hookStopped leader duty duty.job-work",
			"moduleStopped leader duty",
			"built leader",
			"hookStarted leader duty duty.job-work",
			"moduleRebuilt leader duty",
			"hookStopped leader duty duty.job-work",
			"termLeft leader",
			"stopped",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s", diff)
		}
	})
}

func TestAFailedPhaseIsAnEventWithItsError(t *testing.T) {
	var events eventLog
	h := hive.New("test", cell.Module("m", "Fails", cell.Hook("x", func() lifecycle.Hook {
		return lifecycle.Funcs{OnStart: func(context.Context) error { return errors.New("broken") }}
	})), hive.LogTo(io.Discard), hive.OnEvent(events.add))
	if err := h.Start(t.Context()); err == nil {
		t.Fatal("it started")
	}
	want := []string{"hookStarted m m.hook-x: broken", "started: starting m.hook-x: broken"}
	if diff := cmp.Diff(want, events.since(hive.EventHookStarted)); diff != "" {
		t.Errorf("%s", diff)
	}
}
