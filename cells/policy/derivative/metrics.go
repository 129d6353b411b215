// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package derivative

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/runtime/metrics"
)

type derivativeMetrics struct {
	Policies *prometheus.GaugeVec
	Groups   *prometheus.GaugeVec
	Lookups  *prometheus.HistogramVec
}

func newMetrics(f metrics.Factory) *derivativeMetrics {
	return &derivativeMetrics{
		Policies: f.GaugeVec("derived_policies", "Network policies with groups, by the state of their derived policy: ok or error", "state"),
		Groups:   f.GaugeVec("cidr_groups", "Groups for which there are CiliumCIDRGroups, by whether they are in place: ok or pending", "state"),
		Lookups: f.HistogramVec("group_lookup_duration_seconds", "Duration of look-ups of groups, by outcome: success or fail",
			[]float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}, "provider", "outcome"),
	}
}
