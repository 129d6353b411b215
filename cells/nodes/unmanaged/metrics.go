// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package unmanaged

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/runtime/metrics"
)

type podMetrics struct {
	Unmanaged prometheus.Gauge
	Restarted prometheus.Counter
}

func newMetrics(f metrics.Factory) *podMetrics {
	f = f.In("")
	return &podMetrics{
		Unmanaged: f.Gauge("unmanaged_pods", "Running pods of --pod-restart-selector that have no CiliumEndpoint 30 s after their start"),
		Restarted: f.Counter("unmanaged_pods_restarted_total", "Deleted pods without CiliumEndpoint"),
	}
}
