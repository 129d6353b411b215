// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type sliceMetrics struct {
	Endpoints prometheus.Histogram
	Changes   *prometheus.HistogramVec
	Syncs     *prometheus.CounterVec
	Delay     prometheus.Histogram
}

func newMetrics() *sliceMetrics {
	const ns = "cilium_operator"
	return &sliceMetrics{
		Endpoints: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: ns, Name: "number_of_ceps_per_ces", Help: "Endpoints of a CiliumEndpointSlice when it is written",
			Buckets: []float64{1, 10, 25, 50, 100, 200, 500, 1000},
		}),
		Changes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: ns, Name: "number_of_cep_changes_per_ces", Help: "Endpoints that a write of a CiliumEndpointSlice adds or changes, and that it removes",
			Buckets: []float64{1, 5, 10, 25, 50, 100, 250, 500, 1000},
		}, []string{"opcode"}),
		Syncs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: ns, Name: "ces_sync_total", Help: "Writes of CiliumEndpointSlices",
		}, []string{"outcome"}),
		Delay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: ns, Name: "ces_queueing_delay_seconds", Help: "Time from a change of an endpoint to the write of its CiliumEndpointSlice",
			Buckets: append(slices.Clone(prometheus.DefBuckets), 60, 300, 900, 1800, 3600),
		}),
	}
}

// wrote counts a write that was begun for changes since a time.
func (m *sliceMetrics) wrote(o order, since time.Time, err error) {
	if err != nil {
		m.Syncs.WithLabelValues("fail").Inc()
		return
	}
	m.Syncs.WithLabelValues("success").Inc()
	m.Endpoints.Observe(float64(len(o.will)))
	for opcode, n := range map[string]int{"cepinserted": o.inserted, "cepremoved": o.removed} {
		if n > 0 {
			m.Changes.WithLabelValues(opcode).Observe(float64(n))
		}
	}
	if !since.IsZero() {
		m.Delay.Observe(time.Since(since).Seconds())
	}
}
