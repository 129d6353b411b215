// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package validation

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/runtime/metrics"
)

type validationMetrics struct {
	Invalid prometheus.Gauge
	Written prometheus.Counter
}

func newMetrics(f metrics.Factory) *validationMetrics {
	return &validationMetrics{
		Invalid: f.Gauge("policies_invalid", "Network policies with a rule that agents do not accept"),
		Written: f.Counter("conditions_written_total", "Valid conditions of network policies that were written"),
	}
}
