// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crds

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/resources/api"
)

type crdMetrics struct {
	Schema *prometheus.GaugeVec
}

func newMetrics() *crdMetrics {
	return &crdMetrics{Schema: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "cilium_operator", Name: "crd_schema_info",
		Help: "1 for each kind, with the schema version that is installed, the one that is ours, and what came of comparing them",
	}, []string{"crd", "installed", "wanted", "result"})}
}

// set replaces what is told of a definition.
func (m *crdMetrics) set(name, installed string, r result) {
	m.Schema.DeletePartialMatch(prometheus.Labels{"crd": name})
	m.Schema.WithLabelValues(name, installed, api.SchemaVersion, string(r)).Set(1)
}
