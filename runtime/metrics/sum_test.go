// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package metrics

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestSum(t *testing.T) {
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "conflicts"})
	s := NewSum[string](gauge)
	for _, step := range []struct {
		key  string
		n    int
		want float64
	}{{"a", 3, 3}, {"b", 1, 4}, {"a", 1, 2}, {"c", 0, 2}, {"a", 0, 1}, {"b", 0, 0}} {
		s.Set(step.key, step.n)
		if got := testutil.ToFloat64(gauge); got != step.want {
			t.Errorf("%v: the sum is %v", step, got)
		}
	}
	if len(s.of) > 0 {
		t.Errorf("objects without a number are kept: %v", s.of)
	}
}
