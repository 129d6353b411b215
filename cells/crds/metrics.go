// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crds

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/resources/api"
	"github.com/skep-operator/skep/runtime/metrics"
)

type crdMetrics struct {
	Schema *prometheus.GaugeVec
}

func newMetrics(f metrics.Factory) *crdMetrics {
	const help = "1 for each CRD, with the installed schema version, ours, and the result of their comparison"
	return &crdMetrics{f.In("").GaugeVec("crd_schema_info", help, "crd", "installed", "wanted", "result")}
}

// set replaces the result for the CRD of a kind.
func (m *crdMetrics) set(e api.Edition, k api.Kind, installed string, r result) {
	name := k.CRDName()
	m.Schema.DeletePartialMatch(prometheus.Labels{"crd": name})
	m.Schema.WithLabelValues(name, installed, k.Version(e), string(r)).Set(1)
}
