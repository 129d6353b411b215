// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lockgc

import "github.com/prometheus/client_golang/prometheus"

type sweepMetrics struct {
	Swept prometheus.Counter
	Held  prometheus.Gauge
}

func newMetrics() *sweepMetrics {
	const ns, sub = "cilium_operator", "kvstore_locks"
	return &sweepMetrics{
		Swept: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: ns, Subsystem: sub, Name: "swept_total", Help: "Locks in the key-value store that were taken away from a holder that is stuck",
		}),
		Held: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: ns, Subsystem: sub, Name: "held", Help: "Locks of identities in the key-value store that are held, after the last look; 0 where this process does not lead",
		}),
	}
}
