// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mcsapi

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/metrics"
)

// MCS-43; number 5.4 of the contract's tenants.md: of 3,000 ServiceExports and ServiceImports 1,000 have series, the others one; they go with them.
func TestSeriesAreBounded(t *testing.T) {
	m := newMetrics(metrics.Factory{})
	of := func(i int) *state {
		s := &state{key: slim.Key{Namespace: "bb", Name: fmt.Sprintf("x%d", i)}, export: &serviceExport{}, imported: &serviceImport{}}
		s.export.Status.Conditions = []metav1.Condition{{Type: "Valid", Status: metav1.ConditionFalse}}
		s.imported.Spec.Type = mcsv1alpha1.ClusterSetIP
		s.imported.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue}}
		s.imported.Status.Clusters = make([]mcsv1alpha1.ClusterStatus, 2)
		for n := range i % 10 { // of others, who may write any
			made := metav1.Condition{Type: fmt.Sprintf("x%d", n), Status: metav1.ConditionTrue}
			s.export.Status.Conditions = append(s.export.Status.Conditions, made)
			s.imported.Status.Conditions = append(s.imported.Status.Conditions, made)
		}
		return s
	}
	for range 2 {
		for i := range 3000 {
			m.report(of(i))
		}
	}
	bounded := map[string]*prometheus.GaugeVec{
		"exports": m.ExportInfo, "conditions of exports": m.ExportConditions,
		"imports": m.ImportInfo, "conditions of imports": m.ImportConditions, "clusters of imports": m.ImportClusters,
	}
	for what, of := range bounded {
		if n := testutil.CollectAndCount(of); n != maxNamed+1 {
			t.Errorf("%s: %d series, want one for each of %d and one for the others", what, n, maxNamed)
		}
	}
	for what, got := range map[string][2]float64{
		"exports that are not valid":     {testutil.ToFloat64(m.ExportConditions.WithLabelValues(others, others, "Valid", "False")), 2000},
		"imports that are ready":         {testutil.ToFloat64(m.ImportConditions.WithLabelValues(others, others, "Ready", "True")), 2000},
		"clusters that export something": {testutil.ToFloat64(m.ImportClusters.WithLabelValues(others, others)), 4000},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %v of others, want %v", what, got[0], got[1])
		}
	}
	for i := range 3000 {
		s := of(i)
		s.export, s.imported = nil, nil
		m.report(s)
	}
	for what, of := range bounded {
		if n := testutil.CollectAndCount(of); n != 1 {
			t.Errorf("%s: %d series stay", what, n)
		}
	}
	if n := testutil.ToFloat64(m.ImportInfo.WithLabelValues(others, others, "ClusterSetIP")); n != 0 {
		t.Errorf("%v imports of others stay", n)
	}
}

// A ServiceImport needs no spec, and where another definition is installed it has any type: neither is a label, nor a panic.
func TestTypesOfImportsAreBounded(t *testing.T) {
	m := newMetrics(metrics.Factory{})
	for i := range 500 {
		s := &state{key: slim.Key{Namespace: "bb", Name: fmt.Sprintf("x%d", i)}, imported: &serviceImport{}}
		s.imported.Spec.Type = mcsv1alpha1.ServiceImportType(strings.Repeat("x", i))
		m.report(s)
	}
	if n := testutil.ToFloat64(m.ImportInfo.WithLabelValues("x0", "bb", others)) + testutil.ToFloat64(m.ImportInfo.WithLabelValues("x7", "bb", others)); n != 2 {
		t.Errorf("%v of two are counted as others", n)
	}
	if n := testutil.CollectAndCount(m.ImportInfo); n != 500 {
		t.Errorf("%d series of 500 names", n)
	}
}

// MCS-43: a ServiceImport of a user needs no spec. It is counted, said to be refused, and its handling does not panic.
func TestImportWithoutSpec(t *testing.T) {
	w := newWorld(t)
	o := w.start("--clustermesh-config=")
	w.create(imports.Resource(), "ServiceImport", "bare", nil)
	w.awaitReady("bare", "False/Failed")
	operatortest.Eventually(t, "the metric has it", func() bool { return o.Metric("mcsapi_serviceimport_info", w.Namespace, "bare", others) == 1 })
	w.awaitHealthy(o)
}
