// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lockgc

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/runtime/metrics"
)

type sweepMetrics struct {
	Swept prometheus.Counter
	Held  prometheus.Gauge
}

func newMetrics(f metrics.Factory) *sweepMetrics {
	f = f.In("kvstore_locks")
	return &sweepMetrics{
		Swept: f.Counter("swept_total", "Identity locks in the kvstore that were deleted because their holder hangs"),
		Held:  f.Gauge("held", "Identity locks in the kvstore that are held, as of the last check; 0 where this process does not lead"),
	}
}
