// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
	"github.com/skep-operator/skep/runtime/metrics"
)

// samplesOf are the samples of the metrics whose names have a prefix: the values of counters and gauges, and the sum and count of
// histograms.
func samplesOf(t *testing.T, r *metrics.Registry, prefix string) (all []string) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, s := range f.GetMetric() {
			text := f.GetName()
			for _, l := range s.GetLabel() {
				text += fmt.Sprintf(" %s=%s", l.GetName(), l.GetValue())
			}
			value := fmt.Sprint(s.GetCounter().GetValue() + s.GetGauge().GetValue())
			if h := s.GetHistogram(); h != nil {
				value = fmt.Sprint(h.GetSampleSum(), "/", h.GetSampleCount())
			}
			if name, ok := strings.CutPrefix(text, prefix); ok {
				all = append(all, name+" "+value)
			}
		}
	}
	return all
}

// The runs of jobs have the names of other operators of its kind, too, by the kind of job.
func TestRunsOfJobsByKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var registry *metrics.Registry
		events, runs := make(chan int), 0
		takes := func(d time.Duration) func(context.Context) error {
			return func(context.Context) error { time.Sleep(d); return nil } // the work of a job, in the time of the bubble
		}
		h := newHive(cell.Module("m", "Works",
			cell.Invoke(func(r *metrics.Registry) { registry = r }),
			cell.Job("once", func() job.Job {
				return job.OneShot(func(ctx context.Context) error {
					if runs++; runs < 3 {
						return errors.New("not yet")
					}
					return takes(2 * time.Second)(ctx)
				}, job.Retry(time.Second, time.Second))
			}),
			cell.Job("regular", func() job.Job { return job.Timer(takes(3*time.Second), 10*time.Second) }),
			cell.Job("each", func() job.Job {
				return job.Observer(events, func(ctx context.Context, seconds int) error {
					return takes(time.Duration(seconds) * time.Second)(ctx)
				})
			}),
		))
		if err := h.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		events <- 4
		events <- 1
		time.Sleep(15*time.Second - time.Millisecond) // in the bubble: before the third run of the timer
		synctest.Wait()
		want := []string{
			"observer_last_run_duration_seconds job_name=each module_id=m 1", "observer_run_duration_seconds job_name=each module_id=m 5/2",
			"oneshot_last_run_duration_seconds job_name=once module_id=m 2",
			"runs_failed job_name=once module_id=m 2",
			"runs_total job_name=each module_id=m 2", "runs_total job_name=once module_id=m 3", "runs_total job_name=regular module_id=m 2",
			"timer_last_run_duration_seconds job_name=regular module_id=m 3", "timer_run_duration_seconds job_name=regular module_id=m 6/2",
		}
		if diff := cmp.Diff(want, samplesOf(t, registry, "hive_jobs_")); diff != "" {
			t.Error(diff)
		}
		if err := h.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// The durations are those of the phases, and the version is that of the program.
func TestDurationsOfPhases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var registry *metrics.Registry
		pause := func(d time.Duration) { time.Sleep(d) } // in the bubble
		h := newHive(cell.Module("m", "Is slow",
			cell.Invoke(func(r *metrics.Registry) { registry = r; pause(2 * time.Second) }),
			cell.Hook("dial", func() lifecycle.Hook {
				return lifecycle.Funcs{OnStart: func(context.Context) error { pause(3 * time.Second); return nil }}
			}),
		))
		if err := h.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"duration 2", "duration 3"}, slices.Concat(samplesOf(t, registry, "hive_populate_"), samplesOf(t, registry, "hive_start_"))); diff != "" {
			t.Error(diff)
		}
		if got := samplesOf(t, registry, "version "); len(got) != 1 || !strings.HasPrefix(got[0], "arch=") || !strings.HasSuffix(got[0], "version=unknown 1") {
			t.Errorf("%q", got)
		}
		if err := h.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
