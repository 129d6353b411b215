// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identitygc

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// gcMetrics are those of the original. The label identity_type tells where
// identities are kept.
type gcMetrics struct {
	Entries *prometheus.GaugeVec
	Runs    *prometheus.GaugeVec
	Latency *prometheus.GaugeVec
}

// The values of identity_type.
const inCRD = "crd"

func newMetrics() *gcMetrics {
	const ns, sub = "cilium_operator", "identity_gc"
	return &gcMetrics{
		Entries: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: ns, Subsystem: sub, Name: "entries", Help: "Identities after the last look for those that no endpoint uses, and those that it deleted",
		}, []string{"status", "identity_type"}),
		Runs: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: ns, Subsystem: sub, Name: "runs", Help: "How often identities were looked at; it counts up",
		}, []string{"outcome", "identity_type"}),
		Latency: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: ns, Subsystem: sub, Name: "latency", Help: "How long the last look at identities took, in seconds",
		}, []string{"outcome", "identity_type"}),
	}
}

func (m *gcMetrics) ran(kept string, failed bool, took time.Duration) {
	outcome := "success"
	if failed {
		outcome = "fail"
	}
	m.Runs.WithLabelValues(outcome, kept).Inc()
	m.Latency.WithLabelValues(outcome, kept).Set(took.Seconds())
}

func (m *gcMetrics) entries(kept string, alive, deleted int) {
	m.Entries.WithLabelValues("alive", kept).Set(float64(alive))
	m.Entries.WithLabelValues("deleted", kept).Set(float64(deleted))
}

// markMetrics are about marks. They are 0 where this process does not lead.
type markMetrics struct {
	Marked    prometheus.Gauge
	Contested prometheus.Gauge
}

func newMarkMetrics() *markMetrics {
	const ns, sub = "cilium_operator", "identity_gc"
	return &markMetrics{
		Marked: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: ns, Subsystem: sub, Name: "marked_identities", Help: "CiliumIdentities that are marked as unused, and not deleted yet",
		}),
		Contested: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: ns, Subsystem: sub, Name: "contested_identities", Help: "CiliumIdentities that no endpoint uses and whose mark was taken off three times or more: an agent holds on to them, and they are never deleted",
		}),
	}
}
