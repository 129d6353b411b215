// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointgc

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/resources/sweep"
)

type gcMetrics struct {
	Objects *prometheus.CounterVec
	Odd     *prometheus.GaugeVec
}

func newMetrics() *gcMetrics {
	const ns, sub = "cilium_operator", "endpoint_gc"
	return &gcMetrics{
		Objects: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: ns, Subsystem: sub, Name: "objects", Help: "CiliumEndpoints that were deleted, and deletes that failed",
		}, []string{"outcome"}),
		Odd: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: ns, Subsystem: sub, Name: "odd_endpoints", Help: "CiliumEndpoints that are owned by an earlier pod of the name of theirs (stale-owner), and those that have none of their pod's addresses (foreign-address)",
		}, []string{"state"}),
	}
}

// deleted counts as the original does: what somebody else saw to does not count.
func (m *gcMetrics) deleted(o sweep.Outcome) {
	switch o {
	case sweep.Deleted:
		m.Objects.WithLabelValues("success").Inc()
	case sweep.Failed:
		m.Objects.WithLabelValues("fail").Inc()
	}
}

func (m *gcMetrics) odd(o oddities) {
	m.Odd.WithLabelValues("stale-owner").Set(float64(len(o.stale)))
	m.Odd.WithLabelValues("foreign-address").Set(float64(o.foreign))
}
