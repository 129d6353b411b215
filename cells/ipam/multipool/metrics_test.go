// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package multipool

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/skep-operator/skep/runtime/metrics"
)

// MPOOL-46; number 5.3 of the contract's tenants.md: names that nodes make up are no labels, and of many pools the first have series.
func TestSeriesAreBounded(t *testing.T) {
	s, m := newStory(t), newMetrics(metrics.Factory{})
	s.pool("default", "10.0.0.0/16 mask 24", "")
	s.markSynced()
	var requested []string
	for i := range 10_000 {
		requested = append(requested, fmt.Sprintf("made-up-%d: 1", i))
	}
	s.node(has("a").needs(requested...))
	m.update(s.alloc)
	if n := testutil.CollectAndCount(m.Pending); n != 4 {
		t.Errorf("%d series of starved nodes, want those of default and other", n)
	}
	if n := testutil.ToFloat64(m.Pending.WithLabelValues(others, "IPv4")); n != 10_000 {
		t.Errorf("%v pools that do not exist are counted", n)
	}
	s.node(has("a"))
	m.update(s.alloc)
	if n := testutil.CollectAndCount(m.Pending); n != 0 && n != 2 {
		t.Errorf("%d series stay when the node asks for none", n)
	}
	for i := range maxNamed + 5 {
		s.pool(fmt.Sprintf("pool-%04d", i), "", fmt.Sprintf("fd00:%x::/64 mask 64", i+1))
	}
	m.update(s.alloc)
	if n := testutil.CollectAndCount(m.Conflicts); n != maxNamed+1 {
		t.Errorf("%d pools have series, want %d and the rest in one", n, maxNamed)
	}
}
