// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package metrics

import (
	"fmt"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Another name has the samples, with their labels or some of them under other names, as they come and go.
func TestAlso(t *testing.T) {
	f := Factory{Namespace: "op", Subsystem: "pools"}
	used := f.GaugeVec("used", "Used addresses", "pool", "family")
	sent := f.Counter("sent", "Sent")
	took := f.HistogramVec("took", "Took", []float64{1, 10}, "pool")
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(used, sent, took, f.Also("took_long", "took", took, "name=pool"), f.Also("used_total", "used", used, "pool", "family"), f.Also("sent_total", "sent", sent))
	check := func(want ...string) {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, family := range families {
			for _, m := range family.Metric {
				text := family.GetName()
				for _, label := range m.Label {
					text += " " + label.GetName() + "=" + label.GetValue()
				}
				text = fmt.Sprint(text, " ", m.GetGauge().GetValue()+m.GetCounter().GetValue()+m.GetHistogram().GetSampleSum())
				for _, b := range m.GetHistogram().GetBucket() {
					text += fmt.Sprintf(" %v:%d", b.GetUpperBound(), b.GetCumulativeCount())
				}
				got = append(got, text)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	used.WithLabelValues("blue", "4").Set(3)
	sent.Add(2)
	took.WithLabelValues("red").Observe(0.5)
	took.WithLabelValues("red").Observe(2)
	times := []string{"op_pools_took pool=red 2.5 1:1 10:2", "op_pools_took_long name=red 2.5 1:1 10:2"}
	check(append(append([]string{"op_pools_sent 2", "op_pools_sent_total 2"}, times...), "op_pools_used family=4 pool=blue 3", "op_pools_used_total family=4 pool=blue 3")...)
	used.DeleteLabelValues("blue", "4")
	check(append([]string{"op_pools_sent 2", "op_pools_sent_total 2"}, times...)...)
}
