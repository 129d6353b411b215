// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package taints

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/runtime/metrics"
)

type taintMetrics struct {
	Syncs   *prometheus.CounterVec
	Waiting prometheus.Gauge
}

func newMetrics(f metrics.Factory) *taintMetrics {
	f = f.In("")
	return &taintMetrics{
		Syncs:   f.CounterVec("node_taint_sync_total", "Writes of the taint (remove, set) and the condition of nodes", "action", "result"),
		Waiting: f.Gauge("nodes_waiting", "Nodes with the taint --agent-not-ready-taint-key, which wait for their agent"),
	}
}

func (m *taintMetrics) count(a action, err error) {
	result := "success"
	if err != nil {
		result = "fail"
	}
	m.Syncs.WithLabelValues(string(a), result).Inc()
}
