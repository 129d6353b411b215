// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package multipool

import (
	"maps"
	"math/big"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/resources/domain/alloc"
	"github.com/skep-operator/skep/runtime/metrics"
)

type poolMetrics struct {
	Blocks    *prometheus.GaugeVec
	Pending   *prometheus.GaugeVec
	Conflicts *prometheus.GaugeVec

	known map[string]bool // pools with values
}

func newMetrics(f metrics.Factory) *poolMetrics {
	f = f.In("ipam_pool")
	return &poolMetrics{
		Blocks:    f.GaugeVec("blocks", "Blocks of each CiliumPodIPPool: held by a node or not to be allocated (used), free, or held by a node and not part of the pool any more (draining)", "pool", "family", "state"),
		Pending:   f.GaugeVec("nodes_starved", "CiliumNodes that lack addresses of a pool", "pool", "family"),
		Conflicts: f.GaugeVec("conflicts", "Conflicts of each CiliumPodIPPool: whether it is refused since it overlaps another pool, and CIDRs that nodes list of it and other nodes hold", "pool"),
		known:     map[string]bool{},
	}
}

// update sets the gauges. The caller has the lock of the allocator.
func (m *poolMetrics) update(a *allocator) {
	if !a.synced || a.counted == a.edits {
		return
	}
	a.counted = a.edits
	a.claims.apply(a.blocks) // they count as used
	draining, pending, conflicts := a.draining(), map[poolFamily]int{}, map[string]int{}
	for _, n := range a.failing {
		for _, r := range n.refusals {
			pending[poolFamily{r.pool, r.family.String()}]++
		}
		for _, c := range n.conflicts() {
			conflicts[c.pool]++
		}
	}
	pools := map[string]bool{}
	for name, p := range a.pools {
		pools[name] = true
		if p.problem.overlaps {
			conflicts[name]++
		}
		for family, b := range p.blocks {
			labels := []string{name, alloc.Family(family).String()}
			used, free := new(big.Int), new(big.Int)
			if b != nil {
				used, free = b.Used(), b.Free()
			}
			m.Blocks.WithLabelValues(append(labels, "used")...).Set(float(used))
			m.Blocks.WithLabelValues(append(labels, "free")...).Set(float(free))
		}
	}
	for _, of := range slices.Concat(slices.Collect(maps.Keys(draining)), slices.Collect(maps.Keys(pending))) {
		pools[of.pool] = true
	}
	for name := range pools {
		for _, family := range []string{"IPv4", "IPv6"} {
			m.Blocks.WithLabelValues(name, family, "draining").Set(float64(draining[poolFamily{name, family}]))
			m.Pending.WithLabelValues(name, family).Set(float64(pending[poolFamily{name, family}]))
		}
		m.Conflicts.WithLabelValues(name).Set(float64(conflicts[name]))
	}
	m.forget(pools)
}

// forget removes the values of pools that do not exist any more, and of which nodes hold and need nothing.
func (m *poolMetrics) forget(pools map[string]bool) {
	for name := range m.known {
		if !pools[name] {
			for _, vec := range []*prometheus.GaugeVec{m.Blocks, m.Pending, m.Conflicts} {
				vec.DeletePartialMatch(prometheus.Labels{"pool": name})
			}
		}
	}
	m.known = pools
}

func float(n *big.Int) float64 {
	f, _ := new(big.Float).SetInt(n).Float64()
	return f
}
