// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package servicel7

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/runtime/metrics"
)

type serviceMetrics struct {
	Services *prometheus.GaugeVec
}

// The states of a Service that is selected.
const (
	stateServed   = "served"
	stateSkipped  = "skipped"
	stateConflict = "conflict"
)

func newMetrics(f metrics.Factory) *serviceMetrics {
	return &serviceMetrics{
		Services: f.In("servicel7").GaugeVec("services", "Services whose requests are to be balanced by Envoy, by state: with a CiliumEnvoyConfig (served), of a kind that cannot be redirected (skipped), with a CiliumEnvoyConfig of another writer in its place (conflict)", "state"),
	}
}
