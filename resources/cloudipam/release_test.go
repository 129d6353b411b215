// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import (
	"maps"
	"testing"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// CIPAM-25: an address is released if the object shows that the agent does not use it, whatever the cache has shown.
func TestIsReleased(t *testing.T) {
	pools := func(listed ...string) func(*v2.CiliumNode) {
		return func(n *v2.CiliumNode) {
			n.Spec.IPAM.Pool = map[string]v2.AllocationIP{"10.0.0.1": {}}
			n.Spec.IPAM.Pools.Requested = []v2.IPAMPoolRequest{{Pool: "default"}}
			n.Spec.IPAM.Pools.Allocated = []v2.IPAMPoolAllocation{{Pool: "default", CIDRs: listed}}
		}
	}
	state := func(s v2.IPReleaseStatus) func(*v2.CiliumNode) {
		return func(n *v2.CiliumNode) { n.Status.IPAM.ReleaseIPs = states{"10.0.0.1": s} }
	}
	for name, test := range map[string]struct {
		edit func(*v2.CiliumNode)
		want bool
	}{
		"ready":  {state(v2.IPReadyForRelease), true},
		"marked": {state(v2.IPMarkedForRelease), false},
		"kept":   {state(v2.IPDoNotRelease), false},
		"none":   {func(*v2.CiliumNode) {}, false},
		"ready and used": {func(n *v2.CiliumNode) {
			state(v2.IPReadyForRelease)(n)
			n.Status.IPAM.Used = map[string]v2.AllocationIP{"10.0.0.1": {}}
		}, false},
		"returned":          {pools("10.0.0.2/32"), true},
		"listed":            {pools("10.0.0.1/32"), false},
		"nothing is listed": {pools(), false},
	} {
		var n v2.CiliumNode
		if test.edit(&n); isReleased(&n, "10.0.0.1", Address{}) != test.want {
			t.Errorf("%s: not %t", name, test.want)
		}
	}
}

// CIPAM-26 to CIPAM-28: the entries that the operator writes.
func TestEntries(t *testing.T) {
	in := func(list ...string) func(string) bool {
		set := map[string]bool{}
		for _, a := range list {
			set[a] = true
		}
		return func(a string) bool { return set[a] }
	}
	r := releases{byAddress: map[string]release{"timer": {}, "marked": {marked: true}, "ready": {marked: true}, "kept": {marked: true}}}
	shown := states{
		"ready": v2.IPReadyForRelease, "kept": v2.IPDoNotRelease, "unknown": v2.IPMarkedForRelease, "unknown-ready": v2.IPReadyForRelease,
		"detached": v2.IPReadyForRelease, "released": v2.IPReleased, "back": v2.IPReleased,
	}
	all := []string{"timer", "marked", "ready", "kept", "unknown", "unknown-ready", "back"}
	got := r.entries(shown, in(append(all, "detached")...), in(all...))
	want := states{
		"marked": v2.IPMarkedForRelease, "ready": v2.IPReadyForRelease, "kept": v2.IPDoNotRelease,
		"detached": v2.IPReleased, "released": v2.IPReleased,
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
