// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skep-operator/skep/resources/dryrun"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
)

// planLoop plans a loop with one key, and returns how often that is looked at.
func planLoop(t *testing.T, do func(ctx context.Context, p *dryrun.Plan, looks int) error) (report *dryrun.Report, looks int) {
	t.Helper()
	p := dryrun.New(time.Minute)
	scope := Deps{Module: cell.ModuleInfo{ID: "m"}, Log: slog.New(slog.DiscardHandler), Health: health.NewTree().Reporter("m"), Plan: p}
	l := NewQueue(scope, "bring", func(ctx context.Context, _ string) error {
		looks++
		return do(ctx, p, looks)
	}, Workers(1))
	l.Add("key", k8s.Trigger{Kind: "Thing", Name: "key"})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	report, err := p.Make(ctx, func(context.Context) error { return nil })
	cancel()
	<-done
	if err != nil {
		t.Fatal(err)
	}
	return report, looks
}

func record(ctx context.Context, p *dryrun.Plan) {
	p.Record(ctx, dryrun.Write{Module: "m", Verb: "update", Resource: "things", Name: "key"})
}

// Keys wait for simulated time, as long as something may come of it.
func TestPlannedLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		report, looks := planLoop(t, func(ctx context.Context, p *dryrun.Plan, looks int) error {
			if looks == 2 {
				record(ctx, p)
				return nil
			}
			return RequeueAfter(time.Hour)
		})
		if looks != 2 || len(report.Writes) != 1 || report.Writes[0].DueIn != dryrun.Duration(time.Hour) || report.Writes[0].Every != 0 {
			t.Errorf("a write after an hour: %d looks, %+v", looks, report)
		}
		report, looks = planLoop(t, func(context.Context, *dryrun.Plan, int) error { return RequeueAfter(time.Hour) })
		if looks != maxRepeats || !report.Stable || len(report.Writes)+len(report.Waiting) != 0 {
			t.Errorf("waiting for ever: %d looks, %+v", looks, report)
		}
		report, looks = planLoop(t, func(ctx context.Context, p *dryrun.Plan, _ int) error {
			record(ctx, p)
			return RequeueAfter(time.Minute)
		})
		if looks > maxRepeats || len(report.Writes) != 1 || report.Writes[0].Every != dryrun.Duration(time.Minute) || report.Writes[0].DueIn != 0 {
			t.Errorf("writing for ever: %d looks, %+v", looks, report)
		}
		report, looks = planLoop(t, func(_ context.Context, _ *dryrun.Plan, looks int) error {
			if looks < 3 {
				return errors.New("not yet")
			}
			return nil
		})
		if looks != 3 || !report.Stable || len(report.Waiting) != 0 {
			t.Errorf("succeeding at last: %d looks, %+v", looks, report)
		}
		report, looks = planLoop(t, func(context.Context, *dryrun.Plan, int) error { return errors.New("never") })
		if looks != maxRepeats || !report.Stable || !strings.Contains(strings.Join(report.Waiting, ""), "m bring, key: waits for a retry: never") {
			t.Errorf("failing for ever: %d looks, %+v", looks, report)
		}
	})
}

// A loop that does not run yet is waited for.
func TestPlanWaitsForLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := dryrun.New(time.Minute)
		scope := Deps{Module: cell.ModuleInfo{ID: "m"}, Log: slog.New(slog.DiscardHandler), Health: health.NewTree().Reporter("m"), Plan: p}
		NewQueue(scope, "bring", func(context.Context, string) error { return nil }).Add("key")
		report, err := p.Make(t.Context(), func(context.Context) error { return nil })
		if err != nil || report.Stable || !strings.Contains(strings.Join(report.Busy, ""), "m bring: 1 keys queued") {
			t.Errorf("%+v, %v", report, err)
		}
	})
}
