// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mcsapi

import (
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/runtime/metrics"
)

type mcsMetrics struct {
	ExportInfo       *prometheus.GaugeVec
	ExportConditions *prometheus.GaugeVec
	ImportInfo       *prometheus.GaugeVec
	ImportConditions *prometheus.GaugeVec
	ImportClusters   *prometheus.GaugeVec
}

func newMetrics(f metrics.Factory) *mcsMetrics {
	f = f.In("mcsapi")
	return &mcsMetrics{
		ExportInfo:       f.GaugeVec("serviceexport_info", "1 for each ServiceExport", "serviceexport", "namespace"),
		ExportConditions: f.GaugeVec("serviceexport_status_condition", "1 for each condition of a ServiceExport with its status", "serviceexport", "namespace", "condition", "status"),
		ImportInfo:       f.GaugeVec("serviceimport_info", "1 for each ServiceImport, with its type", "serviceimport", "namespace", "type"),
		ImportConditions: f.GaugeVec("serviceimport_status_condition", "1 for each condition of a ServiceImport with its status", "serviceimport", "namespace", "condition", "status"),
		ImportClusters:   f.GaugeVec("serviceimport_status_clusters", "Clusters that export the service of a ServiceImport", "serviceimport", "namespace"),
	}
}

// report sets the metrics of a name as its objects are.
func (m *mcsMetrics) report(s *state) {
	name, namespace := s.key.Name, s.key.Namespace
	for _, v := range []*prometheus.GaugeVec{m.ExportInfo, m.ExportConditions} {
		v.DeletePartialMatch(prometheus.Labels{"serviceexport": name, "namespace": namespace})
	}
	for _, v := range []*prometheus.GaugeVec{m.ImportInfo, m.ImportConditions, m.ImportClusters} {
		v.DeletePartialMatch(prometheus.Labels{"serviceimport": name, "namespace": namespace})
	}
	if e := s.export; e != nil {
		m.ExportInfo.WithLabelValues(name, namespace).Set(1)
		setConditionMetrics(m.ExportConditions, s, e.Status.Conditions)
	}
	if i := s.imported; i != nil {
		m.ImportInfo.WithLabelValues(name, namespace, string(i.Spec.Type)).Set(1)
		m.ImportClusters.WithLabelValues(name, namespace).Set(float64(len(i.Status.Clusters)))
		setConditionMetrics(m.ImportConditions, s, i.Status.Conditions)
	}
}

func setConditionMetrics(v *prometheus.GaugeVec, s *state, conditions []metav1.Condition) {
	for _, c := range conditions {
		v.WithLabelValues(s.key.Name, s.key.Namespace, c.Type, string(c.Status)).Set(1)
	}
}
