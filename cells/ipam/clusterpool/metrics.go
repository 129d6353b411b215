// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterpool

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/runtime/metrics"
)

type poolMetrics struct {
	Blocks *prometheus.GaugeVec
	Nodes  *prometheus.GaugeVec
	Writes *prometheus.CounterVec

	Outside    prometheus.Gauge
	Duplicates prometheus.Gauge
}

// syncMetrics are those of writes of CiliumNodes, by the name that the original has for them.
type syncMetrics reconcile.DutyMetrics

func newSyncMetrics(f metrics.Factory) *syncMetrics {
	return (*syncMetrics)(reconcile.NewDutyMetrics(f.In("ipam"), "k8s_sync", "Bringing a CiliumNode to what it should be"))
}

func newMetrics(f metrics.Factory) *poolMetrics {
	f = f.In("ipam_cluster_pool")
	return &poolMetrics{
		Blocks:     f.GaugeVec("blocks", "Blocks of each cluster CIDR, by state (used, free)", "cidr", "family", "state"),
		Nodes:      f.GaugeVec("nodes", "CiliumNodes by state: with their CIDRs (allocated), with an error (error), with CIDRs that could not be written yet (unstored), before the cache is synced (waiting)", "state"),
		Writes:     f.CounterVec("writes_total", "Writes of CiliumNodes", "verb", "result"),
		Outside:    f.Gauge("outside_nodes", "CiliumNodes with a pod CIDR outside the cluster CIDRs"),
		Duplicates: f.Gauge("duplicate_nodes", "CiliumNodes with a pod CIDR that overlaps one of another node"),
	}
}

// update sets the gauges. The caller has the lock of the allocator. unstored is the number of nodes whose CIDRs could not
// be written.
func (m *poolMetrics) update(a *allocator, unstored int) {
	for family, pools := range a.pools {
		for _, p := range pools {
			labels := []string{p.prefix.String(), familyNames[family]}
			m.Blocks.WithLabelValues(append(labels, "used")...).Set(float64(p.size() - p.free()))
			m.Blocks.WithLabelValues(append(labels, "free")...).Set(float64(p.free()))
		}
	}
	waiting := 0
	if !a.synced {
		waiting = len(a.nodes)
	}
	m.Nodes.WithLabelValues("waiting").Set(float64(waiting))
	m.Nodes.WithLabelValues("error").Set(float64(len(a.pending)))
	m.Nodes.WithLabelValues("unstored").Set(float64(unstored))
	m.Nodes.WithLabelValues("allocated").Set(float64(len(a.nodes) - waiting - len(a.pending) - unstored))
	m.Outside.Set(float64(a.countRefused(notConfigured)))
	m.Duplicates.Set(float64(a.countRefused(alreadyAllocated, poolFull)))
}

func (m *poolMetrics) recordWrite(written bool, err error) {
	switch {
	case err != nil:
		m.Writes.WithLabelValues("update", "fail").Inc()
	case written:
		m.Writes.WithLabelValues("update", "success").Inc()
	}
}
