// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import (
	"fmt"
	"testing"
	"time"

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
		m.Allocations.WithLabelValues(m.subnets.of(id)).Inc()
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
	if n := testutil.ToFloat64(m.Allocations.WithLabelValues(m.subnets.of("subnet-0007"))); n != 1 {
		t.Errorf("the first ones have %v assignments each", n)
	}
}
