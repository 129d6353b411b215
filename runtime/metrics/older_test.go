// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package metrics

import (
	"fmt"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// An older name has the samples of the newer one, with their labels, as they come and go.
func TestOlder(t *testing.T) {
	f := Factory{Namespace: "op", Subsystem: "pools"}
	used := f.GaugeVec("used", "Used addresses", "pool", "family")
	sent := f.Counter("sent", "Sent")
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(used, sent, f.Older("used_total", "used", used, "pool", "family"), f.Older("sent_total", "sent", sent))
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
				got = append(got, fmt.Sprint(text, " ", m.GetGauge().GetValue()+m.GetCounter().GetValue()))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	used.WithLabelValues("blue", "4").Set(3)
	sent.Add(2)
	check("op_pools_sent 2", "op_pools_sent_total 2", "op_pools_used family=4 pool=blue 3", "op_pools_used_total family=4 pool=blue 3")
	used.DeleteLabelValues("blue", "4")
	check("op_pools_sent 2", "op_pools_sent_total 2")
}
