// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lbipam

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/skep-operator/skep/runtime/metrics"
)

// K5 of the contract's tenants.md: series go with their pools.
func TestSeriesOfPoolsGo(t *testing.T) {
	p, m := newPlan(t, newPool("blue", 1, blocks("10.0.0.0/24")), newPool("green", 2, blocks("10.0.1.0/24"))), newMetrics(metrics.Factory{})
	p.markSynced()
	wantSeries := func(want int) {
		t.Helper()
		_, changed := p.drainDirty()
		m.update(p.allocator, changed)
		if available, used := testutil.CollectAndCount(m.Available), testutil.CollectAndCount(m.Used); available != want || used != want {
			t.Errorf("%d and %d series, want %d", available, used, want)
		}
	}
	wantSeries(2)
	p.removePool("green")
	wantSeries(1)
	if n := testutil.ToFloat64(m.Available.WithLabelValues("blue")); n != 256 {
		t.Errorf("blue has %v free addresses", n)
	}
}
