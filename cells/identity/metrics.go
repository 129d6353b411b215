// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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

func newMetrics() *identityMetrics {
	const ns, controller, sub = "cilium_operator", "cid_controller", "identity"
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: ns, Subsystem: sub, Name: name, Help: help})
	}
	return &identityMetrics{
		Events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: ns, Subsystem: controller, Name: "work_queue_event_count", Help: "Looks at sets of labels (pod) and requests to make identities (cid)",
		}, []string{"resource", "outcome"}),
		Latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: ns, Subsystem: controller, Name: "work_queue_latency", Help: "Seconds that sets of labels waited to be looked at (pod, enqueued), that looks took (pod, processing), and requests (cid, processing)",
			Buckets: slices.Concat(prometheus.DefBuckets, []float64{60, 300, 900, 1800, 3600}),
		}, []string{"resource", "phase"}),
		Known:      gauge("known", "CiliumIdentities with a number of this cluster"),
		Used:       gauge("used", "Sets of labels that pods have"),
		Free:       gauge("free_numbers", "Numbers of this cluster that can be given to identities"),
		Duplicates: gauge("duplicates", "Sets of labels that more than one CiliumIdentity has"),
		Exhausted: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: ns, Subsystem: sub, Name: "exhausted_total", Help: "How often no number was free for an identity",
		}),
	}
}

// update tells the state of the table. The caller keeps it from changing.
func (m *identityMetrics) update(t *table) {
	m.Known.Set(float64(len(t.objects)))
	m.Used.Set(float64(t.used))
	m.Free.Set(float64(t.numbers.free()))
	m.Duplicates.Set(float64(t.duplicates))
}

// looked counts a look at a set of labels.
func (m *identityMetrics) looked(waited, took time.Duration, done bool) {
	m.Events.WithLabelValues("pod", outcome(done)).Inc()
	m.Latency.WithLabelValues("pod", "enqueued").Observe(waited.Seconds())
	m.Latency.WithLabelValues("pod", "processing").Observe(took.Seconds())
}

// created counts a request to make an identity.
func (m *identityMetrics) created(waited, took time.Duration, done bool) {
	m.Events.WithLabelValues("cid", outcome(done)).Inc()
	m.Latency.WithLabelValues("cid", "enqueued").Observe(waited.Seconds())
	m.Latency.WithLabelValues("cid", "processing").Observe(took.Seconds())
}

func outcome(done bool) string {
	if done {
		return "success"
	}
	return "fail"
}
