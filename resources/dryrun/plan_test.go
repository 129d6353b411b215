// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package dryrun

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/runtime/cell/celltest"
	"github.com/skep-operator/skep/runtime/waittest"
)

func TestMain(m *testing.M) { waittest.Main(m) }

func TestCell(t *testing.T) {
	celltest.Check(t, Cell, celltest.ModuleID("plan"), celltest.Args("--plan"), celltest.OffArgs("--plan=false"))
}

// make plans, entering at once.
func (p *Plan) makeAtOnce(t *testing.T) *Report {
	t.Helper()
	report, err := p.Make(t.Context(), func(context.Context) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// write records a write as a mechanism's look would.
func (p *Plan) write(name string, pass *Pass) {
	ctx := explain.WithCause(context.Background(), &explain.Cause{Rule: "m rule"})
	p.Record(WithPass(ctx, pass), Write{Module: "m", Verb: "update", Resource: "things", Name: name})
}

// Time jumps to what is needed, and not to what is not; what time passes fires,
// too.
func TestTimeIsSimulated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(time.Minute)
		began := time.Now()
		needed := func() bool { return true }
		p.AfterFunc(time.Hour, needed, func() {
			p.write("in an hour", &Pass{})
			p.AfterFunc(time.Hour, needed, func() { p.write("in two", &Pass{}) })
		})
		p.AfterFunc(90*time.Minute, func() bool { return false }, func() { p.write("passed", &Pass{}) })
		p.AfterFunc(3*time.Hour, func() bool { return false }, func() { t.Error("an unneeded timer fired") })
		report := p.makeAtOnce(t)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %s", took)
		}
		var text bytes.Buffer
		if err := report.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		const want = `m rule:
  update things in an hour; due at +1h0m0s
  update things in two; due at +2h0m0s
  update things passed; due at +2h0m0s
Plan: 3 writes, looking 2h0m0s ahead.
`
		if text.String() != want || report.ExitCode() != 2 {
			t.Errorf("exit code %d\n%s", report.ExitCode(), &text)
		}
	})
}

// A worker is under way but while it waits for its timer; the plan waits for
// workers, and for what other mechanisms say they are at.
func TestPlanWaitsForWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(time.Minute)
		w := p.Begin("worker")
		passes := 0
		go func() {
			defer w.End()
			for passes < 3 {
				time.Sleep(time.Second) // at work
				passes++
				timer := w.NewTimer(time.Hour, func() bool { return passes < 3 })
				select {
				case <-timer.C:
				case <-t.Context().Done():
					return
				}
			}
		}()
		report := p.makeAtOnce(t)
		if passes != 3 || report.ExitCode() != 0 || report.Simulated != Duration(2*time.Hour) {
			t.Errorf("%d passes: %+v", passes, report)
		}
	})
}

// A plan without writes is no promise while something failed: a server outside may not have answered.
func TestIncomplete(t *testing.T) {
	for _, test := range []struct {
		load Load
		code int
		last string
	}{
		{Load{}, 0, "Plan: nothing to do."},
		{Load{Waiting: []string{"stream gateways: not defined"}}, 0, "Plan: nothing to do."},
		{Load{Failed: []string{"spire: no answer"}}, 4, "Plan: no writes, NOT PLANNED TO THE END."},
	} {
		r := New(time.Minute).report(test.load, true)
		var text bytes.Buffer
		if err := r.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		if lines := strings.Split(strings.TrimSpace(text.String()), "\n"); r.ExitCode() != test.code || lines[len(lines)-1] != test.last {
			t.Errorf("%+v: exit code %d\n%s", test.load, r.ExitCode(), &text)
		}
	}
}

// A plan that does not come to rest says what it waits for.
func TestNotStable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(time.Minute)
		p.Observe(func() Load { return Load{Busy: []string{"something"}, Waiting: []string{"it failed"}} })
		report := p.makeAtOnce(t)
		var text bytes.Buffer
		if err := report.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		const want = `Not planned to the end:
  it failed
Still under way:
  something
Plan: nothing to do; NOT STABLE within 1m0s, there may be more: see --plan-timeout.
`
		if report.ExitCode() != 3 || text.String() != want {
			t.Errorf("exit code %d\n%s", report.ExitCode(), &text)
		}

		p = New(time.Minute) // writes without an end
		var again func()
		again = func() {
			p.write(time.Now().String(), &Pass{})
			p.AfterFunc(time.Second, func() bool { return true }, again)
		}
		again()
		if report := p.makeAtOnce(t); report.ExitCode() != 3 || len(report.Busy) == 0 {
			t.Errorf("exit code %d, busy %v", report.ExitCode(), report.Busy)
		}

		p = New(time.Minute) // a term that is not entered
		report, err := p.Make(t.Context(), func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		if err != nil || report.ExitCode() != 3 || !strings.Contains(strings.Join(report.Busy, ""), "entered") {
			t.Errorf("%+v, %v", report, err)
		}
		broken := errors.New("broken")
		if _, err := New(time.Minute).Make(t.Context(), func(context.Context) error { return broken }); err != broken {
			t.Errorf("error %v", err)
		}
	})
}

// What is set while the term is being entered is due as long after that as it was set for, however far time has jumped
// for what the start waits for.
func TestJumpsOfTheStartAreNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, fired := New(time.Minute), false
		report, err := p.Make(t.Context(), func(context.Context) error {
			p.AfterFunc(2*time.Second, func() bool { return !fired }, func() { fired = true; p.write("late", &Pass{}) })
			for range 30 {
				begun := make(chan struct{})
				p.AfterFunc(50*time.Millisecond, func() bool { return true }, func() { close(begun) })
				<-begun
			}
			return nil
		})
		if err != nil || !report.Stable || len(report.Writes) != 1 || report.Writes[0].DueIn != Duration(2*time.Second) {
			t.Errorf("%+v, %v", report, err)
		}
	})
}

// What is retried by the real clock is waited for, but not for ever.
func TestRetriesAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, until := New(time.Minute), time.Now().Add(time.Second)
		p.Observe(func() (l Load) {
			if time.Now().Before(until) {
				l.Retrying = []string{"retrying"}
			}
			return l
		})
		if report := p.makeAtOnce(t); !report.Stable || len(report.Waiting) != 0 || time.Now().Before(until) {
			t.Errorf("%+v", report)
		}
		p = New(time.Minute)
		p.Observe(func() Load { return Load{Retrying: []string{"for ever"}} })
		if report := p.makeAtOnce(t); !report.Stable || len(report.Waiting) != 1 {
			t.Errorf("%+v", report)
		}
	})
}

// A write that time alone sets off again recurs, and changes nothing for others.
func TestRecurringIsRecordedOnce(t *testing.T) {
	p := New(time.Minute)
	p.write("beat", &Pass{})
	generation := p.Generation()
	again := &Pass{Again: time.Minute}
	p.write("beat", again)
	if !again.Recurred() || p.Generation() != generation {
		t.Errorf("recurred: %t", again.Recurred())
	}
	p.write("other", again)
	p.write("beat", &Pass{}) // triggered by something
	writes := p.report(Load{}, true).Writes
	if len(writes) != 3 || writes[0].Every != Duration(time.Minute) || writes[1].Every != 0 {
		t.Errorf("%+v", writes)
	}
	if p.Generation() != generation+2 {
		t.Error("other writes do not count")
	}
}

// The JSON is what docs/plan.md says, and has neither the times of a run nor
// versions that only the plan knows.
func TestJSON(t *testing.T) {
	p := New(time.Minute)
	ctx := explain.WithCause(t.Context(), &explain.Cause{Rule: "m rule", Triggers: []explain.Trigger{
		{Kind: "Thing", Name: "b", ResourceVersion: "4611686018427387905"}, {Kind: "Thing", Namespace: "n", Name: "a", ResourceVersion: "7"},
	}})
	now := time.Now().Add(time.Second).UTC().Format(time.RFC3339)
	p.Record(ctx, Write{
		Module: "m", Verb: "update", Resource: "things", Namespace: "n", Name: "a",
		Changes: []Change{{Path: "at", From: json.RawMessage(`"2020-01-01T00:00:00Z"`), To: json.RawMessage(`"` + now + `"`)}},
		Request: json.RawMessage(`{"at":"` + now + `","was":"2020-01-01T00:00:00Z"}`),
	})
	var text bytes.Buffer
	if err := p.report(Load{Waiting: []string{"x"}}, true).WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	const want = `{
  "stable": true,
  "simulated": "0s",
  "writes": [
    {
      "rule": "m rule",
      "module": "m",
      "verb": "update",
      "resource": "things",
      "namespace": "n",
      "name": "a",
      "changes": [
        {
          "path": "at",
          "from": "2020-01-01T00:00:00Z",
          "to": "(time of the write)"
        }
      ],
      "triggers": [
        "Thing b as planned",
        "Thing n/a at 7"
      ],
      "request": {
        "at": "(time of the write)",
        "was": "2020-01-01T00:00:00Z"
      }
    }
  ],
  "waiting": [
    "x"
  ]
}
`
	if text.String() != want {
		t.Errorf("%s", &text)
	}
}

// Without a plan, time is the clock's.
func TestRealRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p *Plan
		began := time.Now()
		w := p.Begin("x")
		defer w.End()
		timer := w.NewTimer(time.Second, nil)
		<-timer.C
		timer.Reset(time.Second)
		timer.Stop()
		done := make(chan struct{})
		p.AfterFunc(time.Second, nil, func() { close(done) })
		<-done
		p.Moved()
		p.Observe(nil)
		if d := p.Now().Sub(began); d != 2*time.Second || p.Generation() != 0 || p.Objects() != nil {
			t.Errorf("after %s", d)
		}
		if _, _, held := p.Objects().Planned(ciliumNodes, Key{}); held || p.Objects().Newer(ciliumNodes, Key{}, 1) || !p.Objects().Gone(ciliumNodes, Key{}) {
			t.Error("a real run holds something")
		}
		p.Objects().Follow(ciliumNodes, nil)()
	})
}
