// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/health"
)

// ENV-33; K1 of the contract's tenants.md: health has how many lose something, and names the first, as long as there are any.
func TestConflicts(t *testing.T) {
	gauge, tree := prometheus.NewGauge(prometheus.GaugeOpts{Name: "conflicts"}), health.NewTree()
	c := NewConflicts(gauge, tree.Reporter("duty"), "%d lose something, at first %s")
	for i, step := range []struct {
		key  string
		n    int
		at   string
		want string
	}{
		{"a", 0, "none", ""},
		{"b", 2, "b/web", "2 lose something, at first b/web"},
		{"c", 1, "c/web", "3 lose something, at first b/web"},
		{"a", 1, "a/web", "4 lose something, at first a/web"},
		{"a", 1, "d/web", "4 lose something, at first b/web"},
		{"b", 1, "b/web", "3 lose something, at first b/web"},
		{"b", 0, "b/web", "2 lose something, at first c/web"},
		{"c", 0, "", "1 lose something, at first d/web"},
		{"a", 0, "", ""},
		{"e", 1, "e/web", "1 lose something, at first e/web"},
	} {
		c.Set(slim.Key{Name: step.key}, step.n, step.at)
		var got []string
		for _, s := range tree.Snapshot() {
			got = append(got, s.Message)
			if s.ID != "duty.conflicts" || s.Level != health.OK {
				t.Errorf("%d: %+v", i, s)
			}
		}
		if strings.Join(got, ", ") != step.want {
			t.Errorf("%d: %q, want %q", i, got, step.want)
		}
	}
	if n := testutil.ToFloat64(gauge); n != 1 {
		t.Errorf("the metric is %v", n)
	}
}
