// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package zones

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/runtime/metrics"
)

// region metrics

type zoneMetrics struct {
	Written prometheus.Counter
}

func newMetrics(f metrics.Factory) *zoneMetrics {
	return &zoneMetrics{Written: f.Counter("written_total", "Zones written to CiliumNodes")}
}

// endregion
