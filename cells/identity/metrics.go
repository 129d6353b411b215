// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/runtime/metrics"
)

type identityMetrics struct {
	Events  *prometheus.CounterVec
	Latency *prometheus.HistogramVec

	Known      prometheus.Gauge
	Used       prometheus.Gauge
	Free       prometheus.Gauge
	Duplicates prometheus.Gauge
	Exhausted  prometheus.Counter
}

func newMetrics(f metrics.Factory) *identityMetrics {
	queue, f := f.In("cid_controller"), f.In("identity")
	return &identityMetrics{
		Events: queue.CounterVec("work_queue_event_count", "Reconciliations of label sets (resource=pod) and CiliumIdentity create requests (resource=cid), by outcome", "resource", "outcome"),
		Latency: queue.HistogramVec("work_queue_latency", "Seconds that label sets waited for reconciliation (pod, enqueued), that reconciliations took (pod, processing), and create requests (cid, processing)",
			slices.Concat(prometheus.DefBuckets, []float64{60, 300, 900, 1800, 3600}), "resource", "phase"),
		Known:      f.Gauge("known", "CiliumIdentities with a number of this cluster"),
		Used:       f.Gauge("used", "Label sets of pods"),
		Free:       f.Gauge("free_numbers", "Numbers of this cluster that can be allocated to identities"),
		Duplicates: f.Gauge("duplicates", "Label sets with more than one CiliumIdentity"),
		Exhausted:  f.Counter("exhausted_total", "How often no number was free for an identity"),
	}
}

// update sets the gauges. The caller has the lock of the table.
func (m *identityMetrics) update(t *table) {
	m.Known.Set(float64(len(t.objects)))
	m.Used.Set(float64(t.used))
	m.Free.Set(float64(t.numbers.free()))
	m.Duplicates.Set(float64(t.duplicates))
}

// recordReconcile counts a reconciliation of a label set.
func (m *identityMetrics) recordReconcile(waited, took time.Duration, done bool) {
	m.record("pod", waited, took, done)
}

// recordCreate counts a request to create an identity.
func (m *identityMetrics) recordCreate(waited, took time.Duration, done bool) {
	m.record("cid", waited, took, done)
}

func (m *identityMetrics) record(resource string, waited, took time.Duration, done bool) {
	outcome := "fail"
	if done {
		outcome = "success"
	}
	m.Events.WithLabelValues(resource, outcome).Inc()
	m.Latency.WithLabelValues(resource, "enqueued").Observe(waited.Seconds())
	m.Latency.WithLabelValues(resource, "processing").Observe(took.Seconds())
}
