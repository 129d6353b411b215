// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/metrics"
)

type sliceMetrics struct {
	Endpoints prometheus.Histogram
	Changes   *prometheus.HistogramVec
	Syncs     *prometheus.CounterVec
	Delay     *prometheus.HistogramVec
}

func newMetrics(f metrics.Factory) *sliceMetrics {
	f = f.In("")
	return &sliceMetrics{
		Endpoints: f.Histogram("number_of_ceps_per_ces", "Endpoints of a CiliumEndpointSlice when it is written", []float64{1, 10, 25, 50, 100, 200, 500, 1000}),
		Changes:   f.HistogramVec("number_of_cep_changes_per_ces", "Endpoints that a write of a CiliumEndpointSlice adds or changes, and that it removes", []float64{1, 5, 10, 25, 50, 100, 250, 500, 1000}, "opcode"),
		Syncs:     f.CounterVec("ces_sync_total", "Writes of CiliumEndpointSlices", "failure_type", "outcome"),
		Delay:     f.HistogramVec("ces_queueing_delay_seconds", "Time from a change of an endpoint to the write of its CiliumEndpointSlice", append(slices.Clone(prometheus.DefBuckets), 60, 300, 900, 1800, 3600), "queue"),
	}
}

// recordWrite counts a write of changes since a time.
func (m *sliceMetrics) recordWrite(op writeOp, since time.Time, queue string, err error) {
	if err != nil {
		m.Syncs.WithLabelValues(failureType(err, refOf(op.slice.name)), "fail").Inc()
		return
	}
	m.Syncs.WithLabelValues("", "success").Inc()
	m.Endpoints.Observe(float64(len(op.after)))
	for opcode, n := range map[string]int{"cepinserted": op.inserted, "cepremoved": op.removed} {
		if n > 0 {
			m.Changes.WithLabelValues(opcode).Observe(float64(n))
		}
	}
	if !since.IsZero() {
		m.Delay.WithLabelValues(queue).Observe(time.Since(since).Seconds())
	}
}

// failureType tells failures that pass when the slice is read again, or its namespace is gone, from others.
func failureType(err error, ref k8s.Ref) string {
	if isStale(err, ref) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return "transient"
	}
	return "fatal"
}
