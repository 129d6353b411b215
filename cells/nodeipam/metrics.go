// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodeipam

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/runtime/metrics"
)

type serviceMetrics struct {
	Services *prometheus.GaugeVec
}

func newMetrics(f metrics.Factory) *serviceMetrics {
	return &serviceMetrics{
		Services: f.In("nodeipam").GaugeVec("services", "Services that get addresses of nodes, by state: with addresses (served), without an eligible node (no_node), without one whose port is free (port_taken), with an invalid node selector (invalid_selector)", "state"),
	}
}
