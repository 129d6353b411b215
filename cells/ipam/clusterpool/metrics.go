// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterpool

import (
	"github.com/prometheus/client_golang/prometheus"
)

type poolMetrics struct {
	Blocks *prometheus.GaugeVec
	Nodes  *prometheus.GaugeVec
	Writes *prometheus.CounterVec

	Outside    prometheus.Gauge
	Duplicates prometheus.Gauge
}

func newMetrics() *poolMetrics {
	const ns, sub = "cilium_operator", "ipam_cluster_pool"
	return &poolMetrics{
		Blocks: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: ns, Subsystem: sub, Name: "blocks", Help: "Blocks of each cluster CIDR that are used and free",
		}, []string{"cidr", "family", "state"}),
		Nodes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: ns, Subsystem: sub, Name: "nodes", Help: "Nodes that have their CIDRs, that have an error, and that wait for all nodes to be known",
		}, []string{"state"}),
		Writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: ns, Subsystem: sub, Name: "writes_total", Help: "Writes of CiliumNodes",
		}, []string{"verb", "result"}),
		Outside: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: ns, Subsystem: sub, Name: "outside_nodes", Help: "Nodes with a CIDR that is not of the cluster's",
		}),
		Duplicates: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: ns, Subsystem: sub, Name: "duplicate_nodes", Help: "Nodes with a CIDR of which another node has something",
		}),
	}
}

// update tells the state of the allocator. The caller keeps it from changing.
func (m *poolMetrics) update(a *allocator) {
	for family, pools := range a.pools {
		for _, p := range pools {
			labels := []string{p.prefix.String(), familyNames[family]}
			m.Blocks.WithLabelValues(append(labels, "used")...).Set(float64(p.used))
			m.Blocks.WithLabelValues(append(labels, "free")...).Set(float64(p.size - p.used))
		}
	}
	waiting := 0
	if !a.begun {
		waiting = len(a.nodes)
	}
	m.Nodes.WithLabelValues("waiting").Set(float64(waiting))
	m.Nodes.WithLabelValues("error").Set(float64(len(a.starved)))
	m.Nodes.WithLabelValues("allocated").Set(float64(len(a.nodes) - waiting - len(a.starved)))
	m.Outside.Set(float64(a.outside()))
	m.Duplicates.Set(float64(a.duplicates()))
}

func (m *poolMetrics) wrote(written bool, err error) {
	switch {
	case err != nil:
		m.Writes.WithLabelValues("update", "fail").Inc()
	case written:
		m.Writes.WithLabelValues("update", "success").Inc()
	}
}
