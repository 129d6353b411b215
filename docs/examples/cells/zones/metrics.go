// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package zones

import "github.com/prometheus/client_golang/prometheus"

// region metrics

type zoneMetrics struct {
	Told prometheus.Counter
}

func newMetrics() *zoneMetrics {
	return &zoneMetrics{
		Told: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "cilium_operator", Subsystem: "zones", Name: "told_total", Help: "How often a CiliumNode was told its zone",
		}),
	}
}

// endregion
