// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package aws

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
)

// instanceOf is an instance with interfaces, at device indexes in their order.
func instanceOf(table limits, enis ...*eni) *cloudipam.Instance {
	i := &cloudipam.Instance{ID: "i-1", Detail: &detail{limits: table}}
	for index, e := range enis {
		if e.Number == 0 {
			e.Number = index
		}
		if e.Subnet.ID == "" {
			e.Subnet.ID = "subnet-a"
		}
		e.attached = true
		i.Interfaces = append(i.Interfaces, cloudipam.Interface{ID: e.ID, Subnet: e.Subnet.ID, Addresses: e.Addresses, Detail: e})
	}
	return i
}

func eniWith(id string, singles, prefixes int) *eni {
	e := &eni{ENI: v2.ENI{ID: id, VPC: v2.AWSVPC{ID: "vpc-1"}}}
	for n := range singles {
		e.singles = append(e.singles, strings.Repeat("1", n+1))
	}
	for n := range prefixes {
		e.Prefixes = append(e.Prefixes, strings.Repeat("2", n+1))
	}
	return e
}

func mustView(t *testing.T, c Config, i *cloudipam.Instance, edit func(*v2.CiliumNodeSpec)) view {
	t.Helper()
	v, known := c.viewOf(nodeOf("i-1", edit), i)
	if !known {
		t.Fatal("the type is not known")
	}
	return v
}

// AWS-11: when new addresses are prefixes. Those that interfaces have do not matter: an interface can have both.
func TestDelegation(t *testing.T) {
	on := Config{AWSEnablePrefixDelegation: true}
	for name, test := range map[string]struct {
		config Config
		kind   string
		enis   []*eni
		off    bool
		want   bool
	}{
		"off":                              {Config{}, nitro, nil, false, false},
		"on":                               {on, nitro, []*eni{eniWith("a", 0, 0)}, false, true},
		"bare metal":                       {on, metal, nil, false, true},
		"Xen":                              {on, xen, nil, false, false},
		"unknown":                          {on, "", nil, false, false},
		"disabled by the node":             {on, nitro, nil, true, false},
		"single addresses":                 {on, nitro, []*eni{eniWith("a", 1, 0)}, false, true},
		"prefixes":                         {on, nitro, []*eni{eniWith("a", 0, 1)}, false, true},
		"both on one interface":            {on, nitro, []*eni{eniWith("a", 1, 1)}, false, true},
		"single addresses on another one":  {on, nitro, []*eni{eniWith("a", 1, 1), eniWith("b", 1, 0)}, false, true},
		"an interface without any of both": {on, nitro, []*eni{eniWith("a", 0, 1), eniWith("b", 0, 0)}, false, true},
	} {
		v := mustView(t, test.config, instanceOf(limits{"m5.large": {3, 10, test.kind, 0}}, test.enis...), func(s *v2.CiliumNodeSpec) { s.ENI.DisablePrefixDelegation = test.off })
		if v.delegated != test.want {
			t.Errorf("%s: %v", name, v.delegated)
		}
	}
}

// AWS-9, AWS-13, AWS-E8: limits, and interfaces that are excluded.
func TestNumbersOfInstances(t *testing.T) {
	table := limits{"m5.large": {3, 10, nitro, 0}}
	one, five := 1, 5
	for name, test := range map[string]struct {
		config Config
		edit   func(*v2.CiliumNodeSpec)
		enis   []*eni
		want   cloudipam.Limits
	}{
		"one interface":    {Config{}, nil, []*eni{eniWith("a", 0, 0)}, cloudipam.Limits{Addresses: 27, Capacity: 27, PreAllocate: 8, EmptySlots: 2, Interfaces: 1}},
		"a full one":       {Config{}, nil, []*eni{eniWith("a", 9, 0)}, cloudipam.Limits{Addresses: 27, Capacity: 27, PreAllocate: 8, EmptySlots: 2}},
		"from the second":  {Config{}, func(s *v2.CiliumNodeSpec) { s.ENI.FirstInterfaceIndex = &one }, []*eni{eniWith("a", 0, 0)}, cloudipam.Limits{Addresses: 18, Capacity: 18, PreAllocate: 8, EmptySlots: 2}},
		"beyond the last":  {Config{}, func(s *v2.CiliumNodeSpec) { s.ENI.FirstInterfaceIndex = &five }, []*eni{eniWith("a", 0, 0)}, cloudipam.Limits{Capacity: 18}},
		"with prefixes":    {Config{AWSEnablePrefixDelegation: true}, nil, []*eni{eniWith("a", 0, 9)}, cloudipam.Limits{Addresses: 432, Capacity: 432, PreAllocate: 8, EmptySlots: 2}},
		"prefixes of old":  {Config{}, nil, []*eni{eniWith("a", 3, 2)}, cloudipam.Limits{Addresses: 27, Capacity: 57, PreAllocate: 8, EmptySlots: 2, Interfaces: 1}},
		"primary, too":     {Config{}, func(s *v2.CiliumNodeSpec) { s.ENI.UsePrimaryAddress = true }, []*eni{eniWith("a", 0, 0)}, cloudipam.Limits{Addresses: 27, Capacity: 30, PreAllocate: 8, EmptySlots: 2, Interfaces: 1}},
		"all are attached": {Config{}, nil, []*eni{eniWith("a", 9, 0), eniWith("b", 9, 0), eniWith("c", 8, 0)}, cloudipam.Limits{Addresses: 27, Capacity: 27, PreAllocate: 8, Interfaces: 1}},
	} {
		if got := mustView(t, test.config, instanceOf(table, test.enis...), test.edit).limitsOf(); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
	spec := &v2.ENISpec{ExcludeInterfaceTags: map[string]string{"a": "b", "c": "d"}}
	partly, wholly := eniWith("a", 0, 0), eniWith("b", 0, 0)
	partly.Tags, wholly.Tags = map[string]string{"a": "b"}, map[string]string{"a": "b", "c": "d", "e": "f"}
	if isExcluded(spec, partly) || !isExcluded(spec, wholly) {
		t.Error("an interface is excluded by all tags, and no fewer")
	}
}

// AWS-15: where interfaces are created.
func TestSubnets(t *testing.T) {
	subnets := map[string]cloudipam.Subnet{}
	add := func(id, vpc, zone string, free int, eligible bool, tags map[string]string) {
		subnets[id] = cloudipam.Subnet{ID: id, Zone: zone, Free: free, Detail: &subnetDetail{vpc: vpc, tags: tags, eligible: eligible}}
	}
	role := map[string]string{"role": "pods"}
	add("subnet-a", "vpc-1", "eu-west-1a", 10, true, nil)
	add("subnet-b", "vpc-1", "eu-west-1a", 100, true, role)
	add("subnet-c", "vpc-1", "eu-west-1a", 50, true, role)
	add("subnet-d", "vpc-1", "eu-west-1b", 1000, true, role)
	add("subnet-e", "vpc-2", "eu-west-1a", 1000, true, role)
	add("subnet-f", "vpc-1", "eu-west-1a", 1000, false, role)
	for name, test := range map[string]struct {
		edit func(*v2.ENISpec)
		free int // of subnet-a
		want string
	}{
		"that of the node":                  {func(*v2.ENISpec) {}, 10, "subnet-a"},
		"that of the node has too few":      {func(*v2.ENISpec) {}, 9, "subnet-b"},
		"by id":                             {func(s *v2.ENISpec) { s.SubnetIDs = []string{"subnet-a", "subnet-c"} }, 10, "subnet-c"},
		"by an id of another zone":          {func(s *v2.ENISpec) { s.SubnetIDs = []string{"subnet-d"} }, 10, "subnet-a"},
		"by tag":                            {func(s *v2.ENISpec) { s.SubnetTags = role }, 10, "subnet-b"},
		"by a tag that none has":            {func(s *v2.ENISpec) { s.SubnetTags = map[string]string{"role": "x"} }, 10, "subnet-a"},
		"by one that the filter leaves out": {func(s *v2.ENISpec) { s.SubnetIDs = []string{"subnet-f"} }, 10, "subnet-a"},
		"by nothing that there is, and that of the node has too few": {func(s *v2.ENISpec) { s.SubnetIDs = []string{"subnet-x"} }, 9, "subnet-b"},
		"by an id of none, and a tag":                                {func(s *v2.ENISpec) { s.SubnetIDs, s.SubnetTags = []string{"subnet-x"}, role }, 10, "subnet-b"},
		"by an id that is full":                                      {func(s *v2.ENISpec) { s.SubnetIDs = []string{"subnet-a"} }, 1, "subnet-a"},
		"in a zone without any":                                      {func(s *v2.ENISpec) { s.AvailabilityZone = "eu-west-1c" }, 10, ""},
		"ids before tags":                                            {func(s *v2.ENISpec) { s.SubnetIDs, s.SubnetTags = []string{"subnet-a"}, role }, 10, "subnet-a"},
	} {
		add("subnet-a", "vpc-1", "eu-west-1a", test.free, true, nil)
		v := mustView(t, Config{}, instanceOf(limits{"m5.large": {3, 10, nitro, 0}}, eniWith("a", 0, 0)), func(s *v2.CiliumNodeSpec) { test.edit(&s.ENI) })
		got, err := v.chooseSubnet(subnets)
		if got.ID != test.want || (err == nil) != (test.want != "" && got.Free >= minFree) {
			t.Errorf("%s: %s, %v, want %s", name, got.ID, err, test.want)
		}
	}
	add("subnet-a", "vpc-1", "eu-west-1a", 1, true, nil)
	v := mustView(t, Config{}, instanceOf(limits{"m5.large": {3, 10, nitro, 0}}, eniWith("a", 0, 0)), func(s *v2.CiliumNodeSpec) { s.ENI.SubnetIDs = []string{"subnet-a"} })
	if _, err := v.chooseSubnet(subnets); err == nil || !strings.Contains(err.Error(), "subnet-a has no free addresses") {
		t.Error(err)
	}
}

// AWS-14, AWS-17, AWS-18: over any instance, what is asked for fits: EC2 never has a reason to refuse it for a limit.
func TestRequestsFit(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 3)) //nolint:gosec // no secret
		l := limit{1 + r.IntN(5), 1 + r.IntN(12), []string{nitro, xen, metal, ""}[r.IntN(4)], r.IntN(4)}
		var enis []*eni
		for n := range 1 + r.IntN(l.interfaces) {
			singles := r.IntN(l.ipv4)
			enis = append(enis, eniWith(strings.Repeat("e", n+1), singles, r.IntN(l.ipv4-singles)))
		}
		free := r.IntN(40)
		subnets := map[string]cloudipam.Subnet{"subnet-a": {ID: "subnet-a", Zone: "eu-west-1a", Free: free, Detail: &subnetDetail{vpc: "vpc-1", eligible: true}}}
		v := mustView(t, Config{AWSEnablePrefixDelegation: r.IntN(2) == 0}, instanceOf(limits{"m5.large": l}, enis...), func(s *v2.CiliumNodeSpec) {
			first := r.IntN(3)
			s.ENI.FirstInterfaceIndex = &first
		})
		if to, ok := v.freeInterface(subnets); ok {
			at := slices.IndexFunc(enis, func(e *eni) bool { return e.ID == to.Interface })
			slots := 1 + len(enis[at].singles) + len(enis[at].Prefixes) + (to.Count+v.unit()-1)/v.unit()
			if isExcluded(v.spec, enis[at]) || slots > l.ipv4 || to.Count > free || to.Count < 1 {
				t.Fatalf("seed %d: %+v of %+v takes %d of %d", seed, to, enis[at], slots, l.ipv4)
			}
		}
		numbers := v.limitsOf()
		if numbers.EmptySlots < 0 || numbers.EmptySlots+len(enis) > l.interfaces && numbers.EmptySlots > 0 || numbers.EmptySlots > len(v.freeIndexes()) {
			t.Fatalf("seed %d: %+v with %d interfaces of %+v", seed, numbers, len(enis), l)
		}
		if s, err := v.chooseSubnet(subnets); err == nil {
			if o := v.orderOf(1+r.IntN(40), s.Free); o.addresses+o.prefixes > max(1, l.ipv4-1) || o.addresses > free-1 || o.addresses*o.prefixes != 0 {
				t.Fatalf("seed %d: %+v of %+v with %d free", seed, o, l, free)
			}
		}
	}
}
