// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package heartbeat

import "github.com/prometheus/client_golang/prometheus"

type beatMetrics struct {
	LastSuccess prometheus.Gauge
	Failures    prometheus.Counter
}

func newMetrics() *beatMetrics {
	const ns, sub = "cilium_operator", "kvstore_heartbeat"
	return &beatMetrics{
		LastSuccess: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: ns, Subsystem: sub, Name: "last_success_timestamp_seconds",
			Help: "When this process last wrote the heartbeat of the key-value store; 0 if it never did",
		}),
		Failures: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: ns, Subsystem: sub, Name: "failures_total", Help: "Attempts to write the heartbeat of the key-value store that failed",
		}),
	}
}
