// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package servicesync

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/runtime/metrics"
)

type syncMetrics struct {
	Invalid prometheus.Gauge
}

func newMetrics(f metrics.Factory) *syncMetrics {
	return &syncMetrics{
		Invalid: f.In("servicesync").Gauge("services_with_invalid_addresses", "Exported Services with addresses that are left out: they are no IP addresses"),
	}
}
