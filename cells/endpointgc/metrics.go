// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointgc

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/resources/sweep"
	"github.com/skep-operator/skep/runtime/metrics"
)

type gcMetrics struct {
	Objects   *prometheus.CounterVec
	Anomalies *prometheus.GaugeVec
}

func newMetrics(f metrics.Factory) *gcMetrics {
	f = f.In("endpoint_gc")
	return &gcMetrics{
		Objects:   f.CounterVec("objects", "Deleted CiliumEndpoints, and failed deletes", "outcome"),
		Anomalies: f.GaugeVec("odd_endpoints", "CiliumEndpoints whose owner has the uid of an earlier pod of the same name (stale-owner), and those that share no address with their pod (foreign-address)", "state"),
	}
}

// countDelete counts as the original does: deletes by other writers do not count.
func (m *gcMetrics) countDelete(o sweep.Outcome) {
	switch o {
	case sweep.Deleted:
		m.Objects.WithLabelValues("success").Inc()
	case sweep.Failed:
		m.Objects.WithLabelValues("fail").Inc()
	}
}

func (m *gcMetrics) setAnomalies(a anomalies) {
	m.Anomalies.WithLabelValues("stale-owner").Set(float64(len(a.stale)))
	m.Anomalies.WithLabelValues("foreign-address").Set(float64(a.foreign))
}
