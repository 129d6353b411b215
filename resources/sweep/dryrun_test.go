// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package sweep

import (
	"context"
	"fmt"
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

// planSweep plans a sweep of these names. check says what becomes of each.
func planSweep(t *testing.T, names []string, total int, check func(string) (bool, error)) (report *dryrun.Report, scans int) {
	t.Helper()
	p := dryrun.New(time.Minute)
	gone := map[string]bool{}
	scope := Deps{
		Module: cell.ModuleInfo{ID: "m"}, Log: slog.New(slog.DiscardHandler), Health: health.NewTree().Reporter("m"), MaxShare: 0.5, Plan: p,
	}
	s := New(scope, Spec[string, string]{
		Rule: "collect", Interval: 5 * time.Minute, Grace: 5 * time.Minute,
		Scan: func(context.Context) (found Found[string, string], err error) {
			scans++
			found.Total = total
			for _, n := range names {
				if !gone[n] {
					found.Candidates = append(found.Candidates, Candidate[string, string]{Key: n, Object: n})
				}
			}
			return found, nil
		},
		Check: func(_ context.Context, n string) (bool, error) { return check(n) },
		Delete: func(ctx context.Context, n string) (Outcome, error) {
			gone[n] = true
			p.Record(ctx, dryrun.Write{Module: "m", Verb: "delete", Resource: "things", Name: n})
			return Deleted, nil
		},
		Trigger: func(n string) k8s.Trigger { return k8s.Trigger{Kind: "Thing", Name: n} },
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	report, err := p.Make(ctx, func(context.Context) error { return nil })
	cancel()
	<-done
	if err != nil {
		t.Fatal(err)
	}
	return report, scans
}

func always(string) (bool, error) { return true, nil }

// A plan makes the sweeps that it takes, at their simulated times, and no more.
func TestPlannedSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		report, scans := planSweep(t, nil, 10, always)
		if !report.Stable || len(report.Writes) != 0 || scans != 1 {
			t.Errorf("without garbage: %d scans, %+v", scans, report)
		}
		report, scans = planSweep(t, []string{"a", "b"}, 10, always)
		if !report.Stable || len(report.Writes) != 2 || report.Writes[0].DueIn != dryrun.Duration(5*time.Minute) || scans != 3 {
			t.Errorf("%d scans, %+v", scans, report)
		}
		report, scans = planSweep(t, []string{"a", "b"}, 10, func(n string) (bool, error) { return n == "a", nil })
		if !report.Stable || len(report.Writes) != 1 || scans > 6 {
			t.Errorf("with one that is spared: %d scans, %+v", scans, report)
		}
		report, _ = planSweep(t, []string{"a"}, 10, func(string) (bool, error) { return false, fmt.Errorf("nobody answers") })
		if !report.Stable || len(report.Writes) != 0 || !strings.Contains(strings.Join(report.Waiting, ""), "m collect: finding out whether Thing a is needed: nobody answers") {
			t.Errorf("with one that cannot be judged: %+v", report)
		}
		var many []string
		for i := range 20 {
			many = append(many, fmt.Sprint(i))
		}
		report, _ = planSweep(t, many, 20, always)
		if !report.Stable || len(report.Writes) != 0 || !strings.Contains(strings.Join(report.Waiting, ""), "hard to believe") {
			t.Errorf("with the brake on: %+v", report)
		}
		report, _ = planSweep(t, many, 200, always) // 20 a second in a real run
		if !report.Stable || len(report.Writes) != 20 || report.Writes[19].DueIn != report.Writes[0].DueIn {
			t.Errorf("many: %+v", report)
		}
	})
}
