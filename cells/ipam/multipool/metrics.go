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

	known map[string]bool // labels with values
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

const (
	// maxNamed is how many pools have series of their own, the first by name.
	maxNamed = 1000
	// others is the label of the rest, and of pools that do not exist: nodes name what they like.
	others = "other"
)

// labels returns the label of each pool.
func (a *allocator) labels() func(pool string) string {
	names := slices.Sorted(maps.Keys(a.pools))
	named := map[string]bool{}
	for _, name := range names[:min(len(names), maxNamed)] {
		named[name] = true
	}
	return func(pool string) string {
		if named[pool] {
			return pool
		}
		return others
	}
}

// poolCounts are the values of the gauges, by the label of a pool.
type poolCounts struct {
	labels    map[string]bool
	blocks    map[poolFamily]map[string]float64 // by state
	pending   map[poolFamily]float64
	conflicts map[string]float64
}

// count counts blocks, starved nodes and conflicts.
func (a *allocator) count() poolCounts {
	c := poolCounts{map[string]bool{}, map[poolFamily]map[string]float64{}, map[poolFamily]float64{}, map[string]float64{}}
	label := a.labels()
	add := func(of poolFamily, state string, n float64) {
		if c.labels[of.pool] = true; c.blocks[of] == nil {
			c.blocks[of] = map[string]float64{}
		}
		c.blocks[of][state] += n
	}
	for name, p := range a.pools {
		if p.problem.overlaps {
			c.conflicts[label(name)]++
		}
		for family, b := range p.blocks {
			used, free := new(big.Int), new(big.Int)
			if b != nil {
				used, free = b.Used(), b.Free()
			}
			of := poolFamily{label(name), alloc.Family(family).String()}
			add(of, "used", float(used))
			add(of, "free", float(free))
		}
	}
	for of, n := range a.draining() {
		add(poolFamily{label(of.pool), of.family}, "draining", float64(n))
	}
	for _, n := range a.failing {
		for _, r := range n.refusals {
			c.labels[label(r.pool)] = true
			c.pending[poolFamily{label(r.pool), r.family.String()}]++
		}
		for _, of := range n.conflicts() {
			c.labels[label(of.pool)] = true
			c.conflicts[label(of.pool)]++
		}
	}
	return c
}

// update sets the gauges. The caller has the lock of the allocator.
func (m *poolMetrics) update(a *allocator) {
	if !a.synced || a.counted == a.edits {
		return
	}
	a.counted = a.edits
	a.claims.apply(a.blocks) // they count as used
	c := a.count()
	for name := range c.labels {
		for _, family := range []string{"IPv4", "IPv6"} {
			of := poolFamily{name, family}
			m.Blocks.WithLabelValues(name, family, "draining").Set(c.blocks[of]["draining"])
			m.Pending.WithLabelValues(name, family).Set(c.pending[of])
		}
		m.Conflicts.WithLabelValues(name).Set(c.conflicts[name])
	}
	for of, states := range c.blocks {
		for state, n := range states {
			m.Blocks.WithLabelValues(of.pool, of.family, state).Set(n)
		}
	}
	m.forget(c.labels)
}

// forget removes the values of labels that no pool has any more.
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
