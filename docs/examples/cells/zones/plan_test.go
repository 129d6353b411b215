// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package zones

import "testing"

// region plantest

func TestPlan(t *testing.T) {
	p := newPlanner()
	p.zones["a"], p.zones["b"], p.zones["c"] = "east", "east", ""
	p.told["a"], p.told["c"], p.told["d"] = "east", "west", "west"
	for name, want := range map[string]struct {
		zone string
		ok   bool
	}{
		"a": {"east", false}, // it says so
		"b": {"east", false}, // there is no CiliumNode yet
		"c": {"", true},      // its node has left the zone
		"d": {"", false},     // its node is not known yet: nothing is taken back
	} {
		if zone, ok := p.desired(name); zone != want.zone || ok != want.ok {
			t.Errorf("%s: zone %q, %t; want %q, %t", name, zone, ok, want.zone, want.ok)
		}
	}
}

// endregion
