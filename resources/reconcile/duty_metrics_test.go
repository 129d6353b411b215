// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reconcile

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/skep-operator/skep/runtime/metrics"
)

// Metrics of a duty count what was asked for before an attempt, which waits from then on; an attempt that nothing asks for has a duration alone.
func TestMetricsOfADuty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f, attempts := newRig(), metrics.Factory{Namespace: "op", Subsystem: "ipam"}, 0
		deficits, syncs := NewDutyMetrics(f, "deficit_resolver", "Resolving"), NewDutyMetrics(f, "k8s_sync", "Writing")
		q := NewQueue(r.scope, "write", func(context.Context, string) error {
			time.Sleep(3 * time.Second) // the work, in the bubble
			if attempts++; attempts == 2 {
				return RequeueAfter(time.Hour)
			}
			return nil
		}, Workers(1), CountedAs(deficits, nil, syncs))
		pass := func(d time.Duration) { time.Sleep(d); synctest.Wait() } // in the bubble
		want := func(queued, folds, waited, waits, took, attempts float64) {
			t.Helper()
			for _, m := range []*DutyMetrics{deficits, syncs} {
				latency, latencies := histogram(t, m.Latency)
				duration, durations := histogram(t, m.Duration)
				got := []float64{testutil.ToFloat64(m.Queued), testutil.ToFloat64(m.Folds), latency, latencies, duration, durations}
				for i, n := range []float64{queued, folds, waited, waits, took, attempts} {
					if got[i] != n {
						t.Fatalf("%v: number %d is not %v", got, i, n)
					}
				}
			}
		}
		q.Add("a")
		pass(time.Second)
		q.Add("a")
		pass(time.Second)
		want(2, 0, 0, 0, 0, 0)
		r.run(t, q.Run)
		pass(time.Second)
		want(2, 2, 2, 1, 0, 0)
		q.Add("a")
		pass(3 * time.Second)
		want(3, 1, 4, 2, 3, 1)
		pass(2 * time.Hour)
		want(3, 1, 4, 2, 9, 3)
		r.stop()
	})
}

// histogram is the sum and the number of observations.
func histogram(t *testing.T, h prometheus.Histogram) (sum, n float64) {
	t.Helper()
	var m dto.Metric
	if err := h.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetHistogram().GetSampleSum(), float64(m.GetHistogram().GetSampleCount())
}
