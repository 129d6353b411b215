// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import (
	"maps"
	"testing"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cluster"
	cilium "github.com/skep-operator/skep/resources/cluster/release"
)

// CIPAM-25 and CIPAM-38: an address is released if the object shows that the agent does not use it, whatever the cache has shown.
func TestIsReleased(t *testing.T) {
	pools := func(shown string, listed ...string) func(*v2.CiliumNode) {
		return func(n *v2.CiliumNode) {
			n.Spec.IPAM.Pools.Requested = []v2.IPAMPoolRequest{{Pool: "default"}}
			n.Spec.IPAM.Pools.Allocated = []v2.IPAMPoolAllocation{{Pool: "default", CIDRs: listed}}
			n.Status.ENI.ENIs = map[string]v2.ENI{"eni-1": {Addresses: []string{"10.0.0.9", shown}}}
		}
	}
	state := func(s v2.IPReleaseStatus) func(*v2.CiliumNode) {
		return func(n *v2.CiliumNode) { n.Status.IPAM.ReleaseIPs = states{"10.0.0.1": s} }
	}
	for name, test := range map[string]struct {
		edit  func(*v2.CiliumNode)
		pools bool
		want  bool
	}{
		"ready":  {state(v2.IPReadyForRelease), false, true},
		"marked": {state(v2.IPMarkedForRelease), false, false},
		"kept":   {state(v2.IPDoNotRelease), false, false},
		"none":   {func(*v2.CiliumNode) {}, false, false},
		"ready and used": {func(n *v2.CiliumNode) {
			state(v2.IPReadyForRelease)(n)
			n.Status.IPAM.Used = map[string]v2.AllocationIP{"10.0.0.1": {}}
		}, false, false},
		"returned and hidden": {pools("10.0.0.2", "10.0.0.2/32"), true, true},
		"returned and shown":  {pools("10.0.0.1", "10.0.0.2/32"), true, false},
		"listed":              {pools("10.0.0.2", "10.0.0.1/32"), true, false},
		"nothing is listed":   {pools("10.0.0.2"), true, false},
	} {
		var n v2.CiliumNode
		if test.edit(&n); isReleased(&n, test.pools, "10.0.0.1", Address{}) != test.want {
			t.Errorf("%s: not %t", name, test.want)
		}
	}
}

// CIPAM-37; number 44 of the contract's ipam-cloud.md: which protocol an agent has.
func TestWhichProtocol(t *testing.T) {
	asks := v2.IPAMSpec{Pools: v2.IPAMPools{Requested: []v2.IPAMPoolRequest{{Pool: "default", Needed: v2.IPAMPoolDemand{IPv4Addrs: 38}}}}}
	of := v2.IPAMSpec{Pools: v2.IPAMPools{Requested: []v2.IPAMPoolRequest{{Pool: "other"}}}}
	used := v2.IPAMStatus{Used: map[string]v2.AllocationIP{"10.0.0.1": {}}}
	none := v2.IPAMStatus{Used: map[string]v2.AllocationIP{}}
	for name, test := range map[string]struct {
		mode   string
		spec   v2.IPAMSpec
		status v2.IPAMStatus
		want   bool
	}{
		"1.20":                  {"eni", asks, v2.IPAMStatus{}, true},
		"1.20, empty":           {"eni", asks, none, true},
		"back to 1.19":          {"eni", asks, used, false},
		"1.19":                  {"eni", v2.IPAMSpec{}, none, false},
		"another pool":          {"eni", of, none, false},
		"Azure after pools":     {"azure", asks, none, false},
		"Alibaba after pools":   {"alibabacloud", asks, none, false},
		"1.19 that uses others": {"eni", of, used, false},
	} {
		if got := hasPools(test.mode, &test.spec, &test.status); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// CIPAM-49; number 43 of the contract's ipam-aws-eni.md: agents of 1.20 alone get a prefix of IPv6, when they ask for addresses of it.
func TestAsksForIPv6(t *testing.T) {
	asks := func(pool string, ipv6 int) v2.IPAMSpec {
		return v2.IPAMSpec{Pools: v2.IPAMPools{Requested: []v2.IPAMPoolRequest{{Pool: pool, Needed: v2.IPAMPoolDemand{IPv4Addrs: 8, IPv6Addrs: ipv6}}}}}
	}
	for name, test := range map[string]struct {
		release, mode string
		spec          v2.IPAMSpec
		used          map[string]v2.AllocationIP
		want          bool
	}{
		"1.20":           {"1.20", "eni", asks("default", 8), nil, true},
		"IPv4 alone":     {"1.20", "eni", asks("default", 0), nil, false},
		"another pool":   {"1.20", "eni", asks("other", 8), nil, false},
		"back to 1.19":   {"1.20", "eni", asks("default", 8), map[string]v2.AllocationIP{"10.0.0.1": {}}, false},
		"1.19":           {"1.19", "eni", asks("default", 8), nil, false},
		"another cloud":  {"1.20", "azure", asks("default", 8), nil, false},
		"asks for none":  {"1.20", "eni", v2.IPAMSpec{}, nil, false},
		"1.18 and older": {"1.18", "eni", asks("default", 8), nil, false},
	} {
		r, _, err := cilium.Parse(test.release)
		if err != nil {
			t.Fatal(err)
		}
		if got := asksForIPv6(cluster.Config{IPAM: test.mode, Release: r}, &test.spec, &v2.IPAMStatus{Used: test.used}); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// CIPAM-39: a prefix of IPv6 on the list of an agent says nothing of its addresses of IPv4.
func TestIPv6IsNotListed(t *testing.T) {
	spec := v2.IPAMSpec{Pools: v2.IPAMPools{Allocated: []v2.IPAMPoolAllocation{{Pool: "default", CIDRs: []string{"2001:db8::/80"}}}}}
	if all := allocated(&spec); len(all) != 0 {
		t.Errorf("%v", all)
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
