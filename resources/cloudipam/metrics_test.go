// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/skep-operator/skep/runtime/metrics"
)

// K5 of the contract's tenants.md: however many subnets a cloud shows, few have series of their own.
func TestSeriesOfSubnetsAreBounded(t *testing.T) {
	m := newMetrics(metrics.Factory{})
	all := map[string]Subnet{}
	for i := range 2 * maxSubnets {
		id := fmt.Sprintf("subnet-%04d", i)
		all[id] = Subnet{ID: id, Free: 1}
		m.Allocations.WithLabelValues(m.subnetLabel(id)).Inc()
		m.observe(m.AllocationDuration, typeAssign, id, time.Now(), nil)
	}
	m.setSubnets(all)
	for what, n := range map[string]int{"free": testutil.CollectAndCount(m.Subnets), "assigned": testutil.CollectAndCount(m.Allocations), "took": testutil.CollectAndCount(m.AllocationDuration)} {
		if n != maxSubnets+1 {
			t.Errorf("%s: %d series", what, n)
		}
	}
	if n := testutil.ToFloat64(m.Allocations.WithLabelValues(otherSubnets)); n != maxSubnets {
		t.Errorf("the others have %v assignments", n)
	}
	if n := testutil.ToFloat64(m.Allocations.WithLabelValues(m.subnetLabel("subnet-0007"))); n != 1 {
		t.Errorf("the first ones have %v assignments each", n)
	}
}

// K5 of the contract's tenants.md: the code of an error is what a cloud answers, and few have series of their own.
func TestSeriesOfErrorsAreBounded(t *testing.T) {
	m := newMetrics(metrics.Factory{})
	for i := range 3 * maxResults {
		m.observe(m.ReleaseDuration, typeRelease, fmt.Sprintf("subnet-%d", i%10), time.Now(), &NodeError{Status: fmt.Sprintf("Made.Up.%d", i)})
	}
	if n := testutil.CollectAndCount(m.ReleaseDuration); n != maxResults+1 {
		t.Errorf("%d series, want those of %d and of the rest", n, maxResults)
	}
}

// K5 of the contract's tenants.md: agents create CiliumNodes of any names, and those whose instance is not there have no series.
func TestSeriesOfNodesGo(t *testing.T) {
	m := newMetrics(metrics.Factory{})
	for i := range 2000 {
		m.set(fmt.Sprintf("made-up-%d", i), numbers{needed: 8})
	}
	m.set("a", numbers{known: true, needed: 8})
	m.set("b", numbers{known: true, needed: 8})
	m.set("b", numbers{}) // its instance is gone
	m.set("c", numbers{known: true})
	m.remove("c")
	for name, v := range map[string]*prometheus.GaugeVec{"available": m.NodeCapacity, "used": m.NodeUsed, "needed": m.NodeNeeded} {
		if n := testutil.CollectAndCount(v); n != 1 {
			t.Errorf("%s: %d series", name, n)
		}
	}
	if n := testutil.ToFloat64(m.NodeNeeded.WithLabelValues("a")); n != 8 {
		t.Errorf("a lacks %v addresses", n)
	}
}
