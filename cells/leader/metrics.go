// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package leader

import "github.com/prometheus/client_golang/prometheus"

type leaderMetrics struct {
	Leading prometheus.Gauge
	Terms   prometheus.Counter
	Lost    prometheus.Counter
}

func newMetrics() *leaderMetrics {
	const ns = "cilium_operator"
	return &leaderMetrics{
		Leading: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: ns, Name: "leader", Help: "1 while this replica leads, else 0"}),
		Terms:   prometheus.NewCounter(prometheus.CounterOpts{Namespace: ns, Name: "leader_terms_total", Help: "How often this replica began to lead"}),
		Lost:    prometheus.NewCounter(prometheus.CounterOpts{Namespace: ns, Name: "leader_lost_total", Help: "How often this replica lost the lease while leading"}),
	}
}
