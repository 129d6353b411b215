// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package heartbeat

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/runtime/metrics"
)

type beatMetrics struct {
	LastSuccess prometheus.Gauge
	Failures    prometheus.Counter
}

func newMetrics(f metrics.Factory) *beatMetrics {
	f = f.In("kvstore_heartbeat")
	return &beatMetrics{
		LastSuccess: f.Gauge("last_success_timestamp_seconds", "When this process last wrote the heartbeat of the key-value store; 0 if it never did"),
		Failures:    f.Counter("failures_total", "Attempts to write the heartbeat of the key-value store that failed"),
	}
}
