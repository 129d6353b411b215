// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package leader

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/runtime/metrics"
)

type leaderMetrics struct {
	Leading prometheus.Gauge
	Terms   prometheus.Counter
	Lost    prometheus.Counter
}

func newMetrics(f metrics.Factory) *leaderMetrics {
	f = f.In("")
	return &leaderMetrics{
		Leading: f.Gauge("leader", "1 while this replica leads, else 0"),
		Terms:   f.Counter("leader_terms_total", "Number of terms of this replica"),
		Lost:    f.Counter("leader_lost_total", "Number of times that this replica lost the lease while leading"),
	}
}
