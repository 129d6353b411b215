// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodesync

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/runtime/metrics"
)

type nodeMetrics struct {
	Keys    *prometheus.GaugeVec
	Written prometheus.Counter
}

func newMetrics(f metrics.Factory) *nodeMetrics {
	f = f.In("kvstore_nodes")
	return &nodeMetrics{
		Keys:    f.GaugeVec("keys", "Keys of nodes of this cluster in the kvstore, by what holds them: agent, operator, or unreadable", "kind"),
		Written: f.Counter("written_total", "Keys of nodes in the kvstore that were written"),
	}
}

// count records that a key changed.
func (m *nodeMetrics) count(before, after observedKey) {
	if before.exists() {
		m.Keys.WithLabelValues(before.kind()).Dec()
	}
	if after.exists() {
		m.Keys.WithLabelValues(after.kind()).Inc()
	}
}

// kind is the metric label.
func (k observedKey) kind() string {
	switch {
	case !k.readable:
		return "unreadable"
	case k.byAgent():
		return "agent"
	}
	return "operator"
}
