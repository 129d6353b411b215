// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mcsapi

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/metrics"
)

// MCS-43; number 5.4 of the contract's tenants.md: of 3,000 ServiceExports 1,000 have series, the others one; they go with them.
func TestSeriesAreBounded(t *testing.T) {
	m := newMetrics(metrics.Factory{})
	of := func(i int) *state {
		s := &state{key: slim.Key{Namespace: "bb", Name: fmt.Sprintf("x%d", i)}, export: &serviceExport{}}
		s.export.Status.Conditions = []metav1.Condition{{Type: "Valid", Status: metav1.ConditionFalse}}
		for n := range i % 10 { // of others, who may write any
			s.export.Status.Conditions = append(s.export.Status.Conditions, metav1.Condition{Type: fmt.Sprintf("x%d", n), Status: metav1.ConditionTrue})
		}
		return s
	}
	for range 2 {
		for i := range 3000 {
			m.report(of(i))
		}
	}
	if n := testutil.CollectAndCount(m.ExportInfo); n != maxNamed+1 {
		t.Errorf("%d series, want one for each of %d and one for the others", n, maxNamed)
	}
	if n := testutil.ToFloat64(m.ExportConditions.WithLabelValues(others, others, "Valid", "False")); n != 2000 {
		t.Errorf("%v others have the condition", n)
	}
	if n := testutil.CollectAndCount(m.ExportConditions); n != maxNamed+1 {
		t.Errorf("%d series of conditions", n)
	}
	for i := range 3000 {
		s := of(i)
		s.export = nil
		m.report(s)
	}
	if n := testutil.CollectAndCount(m.ExportInfo); n != 1 || testutil.ToFloat64(m.ExportInfo.WithLabelValues(others, others)) != 0 {
		t.Errorf("%d series stay", n)
	}
}
