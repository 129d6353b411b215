// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mcsapi

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/metrics"
)

type mcsMetrics struct {
	ExportInfo       *prometheus.GaugeVec
	ExportConditions *prometheus.GaugeVec
	ImportInfo       *prometheus.GaugeVec
	ImportConditions *prometheus.GaugeVec
	ImportClusters   *prometheus.GaugeVec
	LeftOut          *prometheus.GaugeVec

	mu    sync.Mutex
	all   map[slim.Key]reported
	names map[slim.Key]bool // that have series of their own
}

func newMetrics(f metrics.Factory) *mcsMetrics {
	f = f.In("mcsapi")
	m := &mcsMetrics{
		ExportInfo:       f.GaugeVec("serviceexport_info", "1 for each ServiceExport", "serviceexport", "namespace"),
		ExportConditions: f.GaugeVec("serviceexport_status_condition", "1 for each condition of a ServiceExport with its status", "serviceexport", "namespace", "condition", "status"),
		ImportInfo:       f.GaugeVec("serviceimport_info", "1 for each ServiceImport, with its type", "serviceimport", "namespace", "type"),
		ImportConditions: f.GaugeVec("serviceimport_status_condition", "1 for each condition of a ServiceImport with its status", "serviceimport", "namespace", "condition", "status"),
		ImportClusters:   f.GaugeVec("serviceimport_status_clusters", "Clusters that export the service of a ServiceImport", "serviceimport", "namespace"),
		LeftOut:          f.GaugeVec("left_out_exports", "Exports of a remote cluster that make no objects, by a bound or in a namespace of the system", "source_cluster", "target_cluster"),
	}
	m.reset()
	return m
}

const (
	// maxNamed is how many names have series of their own.
	maxNamed = 1000
	// others is the name and the namespace of the rest, whose series are sums.
	others = "other"
)

// reset forgets all names: those of an earlier term, or of before the module was rebuilt, may be gone.
func (m *mcsMetrics) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all, m.names = map[slim.Key]reported{}, map[slim.Key]bool{}
	for _, v := range []*prometheus.GaugeVec{m.ExportInfo, m.ExportConditions, m.ImportInfo, m.ImportConditions, m.ImportClusters, m.LeftOut} {
		v.Reset()
	}
}

// series is a gauge with its labels after the name and the namespace.
type series struct {
	of    *prometheus.GaugeVec
	extra [2]string // "" for none
}

func (s series) labels(name, namespace string) []string {
	labels := []string{name, namespace}
	for _, label := range s.extra {
		if label != "" {
			labels = append(labels, label)
		}
	}
	return labels
}

// reported is what the metrics have of a name.
type reported struct {
	isNamed bool
	values  map[series]float64
}

// report sets the metrics of a name as its objects are.
func (m *mcsMetrics) report(s *state) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remove(s.key)
	now := reported{len(m.names) < maxNamed, m.valuesOf(s)}
	if len(now.values) == 0 {
		return
	}
	if m.all[s.key] = now; now.isNamed {
		m.names[s.key] = true
	}
	for of, value := range now.values {
		if now.isNamed {
			of.of.WithLabelValues(of.labels(s.key.Name, s.key.Namespace)...).Set(value)
		} else {
			of.of.WithLabelValues(of.labels(others, others)...).Add(value)
		}
	}
}

// remove removes what the metrics have of a name. The caller has the lock.
func (m *mcsMetrics) remove(key slim.Key) {
	was := m.all[key]
	delete(m.all, key)
	delete(m.names, key)
	for of, value := range was.values {
		if was.isNamed {
			of.of.DeleteLabelValues(of.labels(key.Name, key.Namespace)...)
		} else {
			of.of.WithLabelValues(of.labels(others, others)...).Sub(value)
		}
	}
}

// valuesOf are the values of a name.
func (m *mcsMetrics) valuesOf(s *state) map[series]float64 {
	values := map[series]float64{}
	if e := s.export; e != nil {
		values[series{of: m.ExportInfo}] = 1
		addConditions(values, m.ExportConditions, e.Status.Conditions, exportConditionTypes)
	}
	if i := s.imported; i != nil {
		values[series{m.ImportInfo, [2]string{typeLabel(i.Spec.Type)}}] = 1
		values[series{of: m.ImportClusters}] = float64(len(i.Status.Clusters))
		addConditions(values, m.ImportConditions, i.Status.Conditions, importConditionTypes)
	}
	return values
}

// typeLabel is a type of ServiceImports as a label. One without a spec has no type, and may have any where another definition is installed.
func typeLabel(of mcsv1alpha1.ServiceImportType) string {
	if of == mcsv1alpha1.ClusterSetIP || of == mcsv1alpha1.Headless {
		return string(of)
	}
	return others
}

// addConditions adds those of conditions that are of the duty's types: those who may write a status can put any number of others there.
func addConditions(to map[series]float64, of *prometheus.GaugeVec, conditions []metav1.Condition, types []string) {
	for _, t := range types {
		c := meta.FindStatusCondition(conditions, t)
		if c == nil || !slices.Contains(conditionStatuses, c.Status) {
			continue
		}
		to[series{of, [2]string{c.Type, string(c.Status)}}] = 1
	}
}

var conditionStatuses = []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown}

// reportLeftOut sets how many exports of each cluster are left out, and removes clusters of which none is any more.
func (m *mcsMetrics) reportLeftOut(source string, was, now map[string]int) {
	for cluster := range was {
		if now[cluster] == 0 {
			m.LeftOut.DeleteLabelValues(source, cluster)
		}
	}
	for cluster, n := range now {
		m.LeftOut.WithLabelValues(source, cluster).Set(float64(n))
	}
}
