// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package alibabacloud

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
)

// eniFor is an interface with addresses, the first of which is its primary one.
func eniFor(id, kind, status, vSwitch, index string, addresses ...string) cloudipam.Interface {
	e := &eni{status: status}
	e.NetworkInterfaceID, e.Type, e.ZoneID = id, kind, "z1"
	e.VPC.VPCID, e.VSwitch.VSwitchID, e.PrimaryIPAddress = "vpc-1", vSwitch, addresses[0]
	if index != "" {
		e.Tags = map[string]string{indexTag: index}
	}
	if kind == primary {
		e.SecurityGroupIDs = []string{"sg-primary"}
	}
	e = e.With(addresses[1:], nil)
	return cloudipam.Interface{ID: id, Subnet: vSwitch, Addresses: e.all(), Detail: e}
}

func addressesFrom(n, count int) (list []string) {
	for k := range count {
		list = append(list, fmt.Sprintf("10.0.%d.%d", n, k+1))
	}
	return list
}

func instanceWith(interfaces ...cloudipam.Interface) *cloudipam.Instance {
	first := eniFor("eni-0", primary, inUse, "vsw-a", "", "10.0.0.1")
	first.Addresses = nil
	return &cloudipam.Instance{ID: "i-1", Interfaces: append([]cloudipam.Interface{first}, interfaces...), Detail: &detail{limits{"t": {4, 10}, "small": {1, 5}}}}
}

func viewWith(t *testing.T, i *cloudipam.Instance, edit func(*v2.AlibabaCloudSpec)) view {
	t.Helper()
	v, known := viewOf(nodeOf("i-1", func(s *v2.AlibabaCloudSpec) {
		*s = v2.AlibabaCloudSpec{InstanceType: "t"}
		if edit != nil {
			edit(s)
		}
	}), i)
	if !known {
		t.Fatal("the limits are not known")
	}
	return v
}

// CIPAM-44, CIPAM-46, CIPAM-50, ALI-9, ALI-10: what the engine knows of interfaces. One text of an address is the one of all others.
func TestWhatTheEngineKnows(t *testing.T) {
	a := &account{subnets: map[string]cloudipam.Subnet{"vsw-a": {ID: "vsw-a", Detail: &vSwitch{cidr: "10.0.0.0/24"}}}}
	item := func(kind, vSwitch, own string, others ...string) interfaceItem {
		n := interfaceItem{NetworkInterfaceID: "eni-1", Type: kind, Status: inUse, VpcID: "vpc-1", VSwitchID: vSwitch, PrivateIPAddress: own}
		for _, o := range others {
			n.PrivateIPSets.PrivateIPSet = append(n.PrivateIPSets.PrivateIPSet, privateIP{PrivateIPAddress: o})
		}
		return n
	}
	for want, n := range map[string]interfaceItem{
		"[10.0.0.4 10.0.0.5 ::ffff:10.0.0.6 fd00::1 0.0.0.0 169.254.169.10] [] [10.0.0.0/24] vpc-1 10.0.0.4 2 6": item(secondary, "vsw-a", "10.0.0.4", "::ffff:10.0.0.6", "10.0.0.5", "fd00::1", "0.0.0.0", "169.254.169.10"),
		"[] [10.0.0.4 10.0.0.5] [10.0.0.0/24] vpc-1 10.0.0.4 2 2":                                                item(primary, "vsw-a", "10.0.0.4", "10.0.0.5"),
		"[10.0.0.5 ::ffff:10.0.0.6] [] [] vpc-1  1 2":                                                            item(secondary, "vsw-b", "::ffff:10.0.0.4", "10.0.0.5", "::ffff:10.0.0.6"),
	} {
		e := a.describe(n)
		i := a.interfaceOf(e)
		if got := fmt.Sprintf("%v %v %v %s %s %d %d", i.Addresses, i.Own, i.Ranges, i.Network, e.PrimaryIPAddress, len(e.PrivateIPSets), len(e.PrivateIPSets)+len(e.unreadable)); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

// ALI-11: what an instance can have.
func TestLimits(t *testing.T) {
	for name, test := range map[string]struct {
		kind string
		i    *cloudipam.Instance
		want cloudipam.Limits
	}{
		"fresh":          {"t", instanceWith(), cloudipam.Limits{Addresses: 30, Capacity: 30, PreAllocate: 8, EmptySlots: 3}},
		"with room":      {"t", instanceWith(eniFor("eni-1", secondary, inUse, "vsw-a", "1", addressesFrom(1, 4)...)), cloudipam.Limits{Addresses: 30, Capacity: 30, PreAllocate: 8, EmptySlots: 2, Interfaces: 1}},
		"full":           {"t", instanceWith(eniFor("eni-1", secondary, inUse, "vsw-a", "1", addressesFrom(1, 10)...)), cloudipam.Limits{Addresses: 30, Capacity: 30, PreAllocate: 8, EmptySlots: 2}},
		"being attached": {"t", instanceWith(eniFor("eni-1", secondary, "Attaching", "vsw-a", "1", addressesFrom(1, 4)...)), cloudipam.Limits{Addresses: 30, Capacity: 30, PreAllocate: 8, EmptySlots: 2}},
		"of others":      {"t", instanceWith(eniFor("eni-1", "Trunk", inUse, "vsw-a", "", addressesFrom(1, 4)...)), cloudipam.Limits{Addresses: 30, Capacity: 30, PreAllocate: 8, EmptySlots: 2}},
		"one adapter":    {"small", instanceWith(), cloudipam.Limits{PreAllocate: 8}},
	} {
		v := viewWith(t, test.i, func(s *v2.AlibabaCloudSpec) { s.InstanceType = test.kind })
		if got := v.limitsOf(); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
	for _, kind := range []string{"", "unknown"} {
		_, err := (&provider{}).Limits(nodeOf("i-1", func(s *v2.AlibabaCloudSpec) { s.InstanceType = kind }), instanceWith())
		if err == nil || !strings.Contains(err.Error(), "unable to determine limits") || !strings.Contains(err.Error(), kind) {
			t.Errorf("type %q: %v", kind, err)
		}
	}
}

// ALI-10: which addresses are in the pool.
func TestAddresses(t *testing.T) {
	n := nodeOf("i-1", nil)
	n.Status.IPAM.Used = map[string]v2.AllocationIP{"10.0.2.2": {}}
	n.Spec.IPAM.Pool = map[string]v2.AllocationIP{"10.0.2.3": {}}
	i := instanceWith(
		eniFor("eni-1", secondary, inUse, "vsw-a", "1", addressesFrom(1, 2)...),
		eniFor("eni-2", secondary, "Detaching", "vsw-a", "2", addressesFrom(2, 4)...),
	)
	got := (&provider{}).Addresses(n, i)
	want := map[string]string{"10.0.1.1": "eni-1", "10.0.1.2": "eni-1", "10.0.2.2": "eni-2", "10.0.2.3": "eni-2"}
	for address, id := range want {
		if got[address].Resource != id {
			t.Errorf("%s is %+v, want %s", address, got[address], id)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%v", got)
	}
}

// ALI-12, ALI-13: the first interface with room in a vSwitch with free addresses; why there is none.
func TestFreeInterface(t *testing.T) {
	i := instanceWith(
		eniFor("eni-1", secondary, inUse, "vsw-a", "1", addressesFrom(1, 10)...),
		eniFor("eni-2", secondary, inUse, "vsw-full", "2", addressesFrom(2, 4)...),
		eniFor("eni-3", secondary, inUse, "vsw-a", "3", addressesFrom(3, 4)...),
	)
	for name, test := range map[string]struct {
		free map[string]int
		want cloudipam.Candidate
		text string
	}{
		"room":            {map[string]int{"vsw-a": 100}, cloudipam.Candidate{Interface: "eni-3", Subnet: "vsw-a", Count: 6}, ""},
		"the first one":   {map[string]int{"vsw-a": 100, "vsw-full": 2}, cloudipam.Candidate{Interface: "eni-2", Subnet: "vsw-full", Count: 2}, ""},
		"few addresses":   {map[string]int{"vsw-a": 3}, cloudipam.Candidate{Interface: "eni-3", Subnet: "vsw-a", Count: 3}, ""},
		"full vSwitches":  {map[string]int{"vsw-a": 0, "vsw-full": 0}, cloudipam.Candidate{}, "vSwitch vsw-full has no free addresses"},
		"vSwitch is gone": {map[string]int{"vsw-a": 0}, cloudipam.Candidate{}, "vSwitch vsw-full of interface eni-2 does not exist any more"},
	} {
		subnets := map[string]cloudipam.Subnet{}
		for id, free := range test.free {
			subnets[id] = cloudipam.Subnet{ID: id, Free: free}
		}
		v := viewWith(t, i, nil)
		got, ok := v.freeInterface(subnets)
		if got != test.want || ok != (test.want.Count > 0) {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
		if err := v.exhausted(subnets); !ok && (err == nil || !strings.Contains(err.Error(), test.text)) {
			t.Errorf("%s: %v, want %q", name, err, test.text)
		}
	}
	if err := viewWith(t, instanceWith(), nil).exhausted(nil); err != nil {
		t.Errorf("an instance at its limits: %v", err)
	}
}

// ALI-13, ALI-15: the vSwitch with most free addresses of those that the node wants, and how many addresses a new interface has.
func TestVSwitches(t *testing.T) {
	subnets := map[string]cloudipam.Subnet{}
	for id, s := range map[string]struct {
		vpc, zone string
		free      int
		tags      map[string]string
	}{
		"vsw-a": {"vpc-1", "z1", 100, nil}, "vsw-b": {"vpc-1", "z1", 200, map[string]string{"k": "v", "x": "y"}}, "vsw-c": {"vpc-1", "z1", 50, map[string]string{"k": "v"}},
		"vsw-zone": {"vpc-1", "z2", 900, nil}, "vsw-vpc": {"vpc-2", "z1", 900, nil}, "vsw-full": {"vpc-1", "z1", 0, nil}, "vsw-few": {"vpc-1", "z1", 3, map[string]string{"few": ""}},
	} {
		subnets[id] = cloudipam.Subnet{ID: id, Zone: s.zone, Free: s.free, Detail: &vSwitch{vpc: s.vpc, tags: s.tags}}
	}
	for name, test := range map[string]struct {
		edit func(*v2.AlibabaCloudSpec)
		want string
		size int
	}{
		"of the primary interface's zone": {nil, "vsw-b", 8},
		"of the node's zone":              {func(s *v2.AlibabaCloudSpec) { s.AvailabilityZone = "z2" }, "vsw-zone", 8},
		"of the node's VPC":               {func(s *v2.AlibabaCloudSpec) { s.VPCID = "vpc-2" }, "vsw-vpc", 8},
		"named":                           {func(s *v2.AlibabaCloudSpec) { s.VSwitches = []string{"vsw-c", "vsw-a"} }, "vsw-a", 8},
		"named before tags": {func(s *v2.AlibabaCloudSpec) {
			s.VSwitches, s.VSwitchTags = []string{"vsw-a"}, map[string]string{"k": "v"}
		}, "vsw-a", 8},
		"named and full": {func(s *v2.AlibabaCloudSpec) { s.VSwitches = []string{"vsw-full"} }, "", 0},
		"tags":           {func(s *v2.AlibabaCloudSpec) { s.VSwitchTags = map[string]string{"k": "v"} }, "vsw-b", 8},
		"all tags":       {func(s *v2.AlibabaCloudSpec) { s.VSwitchTags = map[string]string{"k": "v", "x": "z"} }, "", 0},
		"few addresses":  {func(s *v2.AlibabaCloudSpec) { s.VSwitchTags = map[string]string{"few": ""} }, "vsw-few", 3},
	} {
		v := viewWith(t, instanceWith(), test.edit)
		got, err := v.chooseVSwitch(subnets)
		if got.ID != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%s: %s, want %q, %v", name, got.ID, test.want, err)
		}
		if err == nil && v.sizeOf(8, got) != test.size {
			t.Errorf("%s: %d addresses, want %d", name, v.sizeOf(8, got), test.size)
		}
	}
	v := viewWith(t, instanceWith(), nil)
	for count, want := range map[int]int{1: 1, 6: 6, 11: 10, 100: 10} {
		if got := v.sizeOf(count, subnets["vsw-a"]); got != want {
			t.Errorf("%d addresses are needed: a new interface has %d, want %d", count, got, want)
		}
	}
}

// ALI-14: security groups of a new interface: all of a VPC are known.
func TestSecurityGroups(t *testing.T) {
	all := []securityGroup{{"sg-1", "vpc-1", map[string]string{"k": "v"}}, {"sg-2", "vpc-1", map[string]string{"k": "v"}}, {"sg-3", "vpc-2", map[string]string{"k": "v"}}}
	for name, test := range map[string]struct {
		edit      func(*v2.AlibabaCloudSpec)
		want      string
		unmatched bool
	}{
		"named":          {func(s *v2.AlibabaCloudSpec) { s.SecurityGroups = []string{"sg-x"} }, "sg-x", false},
		"tags":           {func(s *v2.AlibabaCloudSpec) { s.SecurityGroupTags = map[string]string{"k": "v"} }, "sg-1 sg-2", false},
		"tags of none":   {func(s *v2.AlibabaCloudSpec) { s.SecurityGroupTags = map[string]string{"k": "x"} }, "sg-primary", true},
		"of the primary": {nil, "sg-primary", false},
	} {
		ids, unmatched, err := viewWith(t, instanceWith(), test.edit).chooseGroups(all, "vpc-1")
		if err != nil || strings.Join(ids, " ") != test.want || unmatched != test.unmatched {
			t.Errorf("%s: %v, %t, %v", name, ids, unmatched, err)
		}
	}
	i := instanceWith()
	i.Interfaces = nil
	if _, _, err := viewWith(t, i, nil).chooseGroups(all, "vpc-1"); err == nil {
		t.Error("an instance without interfaces has security groups")
	}
}

// ALI-15: the index of a new interface.
func TestIndexes(t *testing.T) {
	with := func(indexes ...string) (list []cloudipam.Interface) {
		for k, index := range indexes {
			list = append(list, eniFor(fmt.Sprintf("eni-%d", k+1), secondary, inUse, "vsw-a", index, fmt.Sprintf("10.0.%d.1", k)))
		}
		return list
	}
	var most []string
	for k := range 50 {
		most = append(most, fmt.Sprint(k))
	}
	for name, test := range map[string]struct {
		has  []string
		want int
	}{
		"none": {nil, 1}, "a gap": {[]string{"1", "3"}, 2}, "without tags": {[]string{"", "1"}, 2}, "0 and 50": {[]string{"0", "50"}, 1},
		"all are taken": {most, 50}, "negative": {[]string{"-1"}, 0}, "large": {[]string{"51"}, 0}, "no number": {[]string{"one"}, 0},
	} {
		got, err := viewWith(t, instanceWith(with(test.has...)...), nil).nextIndex()
		if got != test.want || (err == nil) != (test.want > 0) {
			t.Errorf("%s: %d, want %d, %v", name, got, test.want, err)
		}
	}
}

// ALI-17: what is released: of the interface with most, and never its primary address.
func TestReleasable(t *testing.T) {
	i := instanceWith(
		eniFor("eni-1", secondary, inUse, "vsw-a", "1", addressesFrom(1, 3)...),
		eniFor("eni-2", secondary, inUse, "vsw-b", "2", addressesFrom(2, 5)...),
		eniFor("eni-3", secondary, "Detaching", "vsw-b", "3", addressesFrom(3, 9)...),
		eniFor("eni-4", "Member", inUse, "vsw-b", "", addressesFrom(4, 9)...),
	)
	for name, test := range map[string]struct {
		used  []string
		count int
		want  []string
	}{
		"all":          {nil, 10, []string{"10.0.2.2", "10.0.2.3", "10.0.2.4", "10.0.2.5"}},
		"some":         {nil, 2, []string{"10.0.1.2", "10.0.1.3"}},
		"without used": {[]string{"10.0.2.3", "10.0.2.4", "10.0.2.5"}, 10, []string{"10.0.1.2", "10.0.1.3"}},
		"none":         {nil, 0, nil},
		"all are used": {append(addressesFrom(1, 3), addressesFrom(2, 5)...), 10, nil},
	} {
		got := releasable(i, func(a string) bool { return slices.Contains(test.used, a) }, test.count)
		if !slices.Equal(got.Addresses, test.want) {
			t.Errorf("%s: %+v, want %v", name, got, test.want)
		}
	}
}

// ALI-12: interfaces are in the order of their indexes, the primary one first.
func TestOrder(t *testing.T) {
	list := []cloudipam.Interface{
		eniFor("eni-b", secondary, inUse, "vsw-a", "", "10.0.0.9"), eniFor("eni-c", secondary, inUse, "vsw-a", "10", "10.0.0.8"),
		eniFor("eni-z", primary, inUse, "vsw-a", "", "10.0.0.1"), eniFor("eni-d", secondary, inUse, "vsw-a", "2", "10.0.0.7"),
	}
	slices.SortFunc(list, func(a, b cloudipam.Interface) int { return compareInterfaces(eniOf(a), eniOf(b)) })
	var order []string
	for _, of := range list {
		order = append(order, of.ID)
	}
	if got := strings.Join(order, " "); got != "eni-z eni-d eni-c eni-b" {
		t.Error(got)
	}
}
