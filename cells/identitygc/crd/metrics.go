// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crd

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/runtime/metrics"
)

// markMetrics are about marks. They are 0 where this process does not lead.
type markMetrics struct {
	Marked    prometheus.Gauge
	Contested prometheus.Gauge
}

func newMarkMetrics(f metrics.Factory) *markMetrics {
	f = f.In("identity_gc")
	return &markMetrics{
		Marked:    f.Gauge("marked_identities", "CiliumIdentities that are marked as unused, and not deleted yet"),
		Contested: f.Gauge("contested_identities", "Unused CiliumIdentities whose mark was removed three times or more by an agent; they are never deleted"),
	}
}
