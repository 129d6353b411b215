// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package bgp

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/runtime/metrics"
)

type bgpMetrics struct {
	Errors   *prometheus.CounterVec
	Duration prometheus.Histogram
}

func newMetrics(f metrics.Factory) *bgpMetrics {
	f = f.In("bgp_control_plane")
	agents := f // the original's name of the histogram has no part for the operator
	agents.Namespace = strings.TrimSuffix(f.Namespace, "_operator")
	return &bgpMetrics{
		Errors:   f.CounterVec("reconcile_errors_total", "Failed reconciliations, by the object that they were for", "resource_kind", "resource_name"),
		Duration: agents.Histogram("reconcile_run_duration_seconds", "Duration of reconciliations", prometheus.ExponentialBuckets(0.0001, 4, 10)),
	}
}
