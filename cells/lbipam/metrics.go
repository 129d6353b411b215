// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lbipam

import (
	"math/big"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/runtime/metrics"
)

type lbMetrics struct {
	Conflicting prometheus.Gauge
	Invalid     prometheus.Gauge
	Available   *prometheus.GaugeVec
	Used        *prometheus.GaugeVec
	Matching    prometheus.Gauge
	Unsatisfied prometheus.Gauge
	Processing  *prometheus.HistogramVec

	// Their names before 1.17.
	OlderConflicting, OlderAvailable, OlderUsed, OlderMatching, OlderUnsatisfied *metrics.Also
}

func newMetrics(f metrics.Factory) *lbMetrics {
	m := &lbMetrics{
		Conflicting: f.Gauge("conflicting_pools", "CiliumLoadBalancerIPPools that overlap an older one or themselves"),
		Invalid:     f.Gauge("invalid_pools", "CiliumLoadBalancerIPPools whose spec is not valid"),
		Available:   f.GaugeVec("ips_available", "Addresses of a pool that can be allocated", "pool"),
		Used:        f.GaugeVec("ips_used", "Addresses of a pool that are allocated or reserved", "pool"),
		Matching:    f.Gauge("services_matching", "LoadBalancer Services that get their addresses here"),
		Unsatisfied: f.Gauge("services_unsatisfied", "LoadBalancer Services that miss an address"),
		Processing: f.HistogramVec("event_processing_time_seconds", "How long the change of a pool or a Service took to be taken over",
			prometheus.ExponentialBuckets(0.0001, 4, 9), "event", "resource"),
	}
	m.OlderConflicting = f.Also("conflicting_pools_total", "conflicting_pools", m.Conflicting)
	m.OlderAvailable = f.Also("ips_available_total", "ips_available", m.Available, "pool")
	m.OlderUsed = f.Also("ips_used_total", "ips_used", m.Used, "pool")
	m.OlderMatching = f.Also("services_matching_total", "services_matching", m.Matching)
	m.OlderUnsatisfied = f.Also("services_unsatisfied_total", "services_unsatisfied", m.Unsatisfied)
	return m
}

// processed records how long a change took. kind is that of a change in the stream.
func (m *lbMetrics) processed(kind stream.ChangeKind, resource string, began time.Time) {
	event := "upsert"
	if kind == stream.Delete {
		event = "delete"
	}
	m.Processing.WithLabelValues(event, resource).Observe(time.Since(began).Seconds())
}

// update sets the gauges, of pools those that changed. The caller has the lock of the allocator.
func (m *lbMetrics) update(a *allocator, changed map[string]bool) {
	var conflicting, invalid float64
	for _, p := range a.order {
		if p.conflict != "" {
			conflicting++
		}
		if p.problem != nil {
			invalid++
		}
	}
	m.Conflicting.Set(conflicting)
	m.Invalid.Set(invalid)
	m.Matching.Set(float64(a.matching()))
	m.Unsatisfied.Set(float64(len(a.waiting.services)))
	for name := range changed {
		p := a.pools[name]
		if p == nil {
			m.Available.DeleteLabelValues(name)
			m.Used.DeleteLabelValues(name)
			continue
		}
		m.Available.WithLabelValues(name).Set(toFloat(p.addresses.Free()))
		m.Used.WithLabelValues(name).Set(toFloat(p.addresses.Used()))
	}
}

func toFloat(n *big.Int) float64 {
	f, _ := new(big.Float).SetInt(n).Float64()
	return f
}
