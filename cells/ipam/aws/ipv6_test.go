// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package aws

import (
	"slices"
	"strings"
	"testing"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/cloudipam/ec2test"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/operatortest"
)

var _ cloudipam.IPv6Prefixer = (*provider)(nil)

// dualRegion is a region whose subnet has a block of IPv6.
func dualRegion(kind string) *ec2test.Cloud {
	c := region(kind, "i-1")
	c.AddIPv6("subnet-a", "2001:db8:0:a::/64")
	return c
}

// dualNode asks for addresses of IPv6.
func dualNode(edit func(*v2.CiliumNodeSpec)) *cloudipam.Node {
	n := nodeOf("i-1", edit)
	n.IPv6 = true
	return n
}

// ipv6Of are the prefixes of IPv6 in the status of a node.
func (s *subject) ipv6Of(i *cloudipam.Instance) (list []string) {
	var status v2.CiliumNodeStatus
	s.SetStatus(nodeOf("i-1", nil), i, &status)
	for _, e := range status.ENI.ENIs {
		list = append(list, e.IPv6Prefixes...)
	}
	return list
}

// Number 43 of the contract's ipam-aws-eni.md; AWS-34: the interface with room for addresses gets a prefix, which is in the status, also
// while EC2 does not show it yet, and is the only one. It is none of the addresses of IPv4, and is not released.
func TestIPv6Prefix(t *testing.T) {
	c := dualRegion("m5.large")
	s, n := newSubject(t, Config{}, c), dualNode(nil)
	state := s.read()
	to, ok := s.IPv6Interface(n, state.Instances["i-1"], state.Subnets)
	if first := c.Interfaces()[0].ID; !ok || to.Interface != first {
		t.Fatalf("%+v, %v: want %s", to, ok, first)
	}
	c.Freeze()
	if err := s.AssignIPv6Prefix(s.ctx(), n, state.Instances["i-1"], to); err != nil {
		t.Fatal(err)
	}
	if made := s.calls.of("AssignIpv6Addresses"); len(made) != 1 || made[0]["Ipv6PrefixCount"] != "1" || made[0]["NetworkInterfaceId"] != to.Interface {
		t.Errorf("%v", made)
	}
	for what, i := range map[string]*cloudipam.Instance{"of all": s.read().Instances["i-1"], "of one": s.one()} {
		if list := s.ipv6Of(i); !slices.Equal(list, []string{"2001:db8:0:a::/80"}) {
			t.Errorf("a read %s has %v", what, list)
		}
		if again, ok := s.IPv6Interface(n, i, state.Subnets); ok {
			t.Errorf("%+v is to get another one", again)
		}
		if all := s.Addresses(n, i); len(all) != 0 || s.Releasable(n, i, func(string) bool { return false }, 100).Prefixes != nil {
			t.Errorf("it counts as %v", all)
		}
		if l, err := s.Limits(n, i); err != nil || l.Interfaces != 1 {
			t.Errorf("%+v, %v", l, err)
		}
	}
	if free, ok := s.FreeInterface(n, s.one(), state.Subnets); !ok || free.Count != 9 {
		t.Errorf("%+v, %v: it takes no slot of IPv4", free, ok)
	}
}

// AWS-34: which interface gets it. Those that pods do not use get none, and theirs does not count.
func TestIPv6Interface(t *testing.T) {
	one := 1
	for name, test := range map[string]struct {
		addresses int
		node      *cloudipam.Node
		want      bool
	}{
		"not asked for": {0, nodeOf("i-1", nil), false},
		"full of IPv4":  {9, dualNode(nil), true},
		"excluded":      {0, dualNode(func(s *v2.CiliumNodeSpec) { s.ENI.FirstInterfaceIndex = &one }), false},
		"unknown type":  {0, dualNode(func(s *v2.CiliumNodeSpec) { s.ENI.InstanceType = "x0.none" }), false},
	} {
		t.Run(name, func(t *testing.T) {
			c := dualRegion("m5.large")
			s := newSubject(t, Config{}, c)
			if test.addresses > 0 {
				s.assign(test.addresses, nil)
			}
			state := s.read()
			if to, ok := s.IPv6Interface(test.node, state.Instances["i-1"], state.Subnets); ok != test.want {
				t.Errorf("%+v, %v", to, ok)
			}
		})
	}
}

// Number 43 of the contract's ipam-aws-eni.md; AWS-34: an interface that is created for a node without one has it from the start, also
// where its subnet has no prefix of IPv4. The next interface has none.
func TestIPv6PrefixAtCreate(t *testing.T) {
	for name, config := range map[string]Config{"addresses": {}, "no prefix of IPv4": {AWSEnablePrefixDelegation: true}} {
		t.Run(name, func(t *testing.T) {
			c := dualRegion("m5.large")
			c.Fill("subnet-a", 100) // it has no block of 16 addresses
			s := newSubject(t, config, c)
			for range 2 {
				state := s.read()
				one := 1
				n := dualNode(func(s *v2.CiliumNodeSpec) { s.ENI.FirstInterfaceIndex = &one })
				if _, err := s.CreateInterface(s.ctx(), n, state.Instances["i-1"], state.Subnets, 4); err != nil {
					t.Fatal(err)
				}
			}
			var counts []string
			for _, made := range s.calls.of("CreateNetworkInterface") {
				counts = append(counts, made["Ipv6PrefixCount"])
			}
			want := []string{"1", ""}
			if config.AWSEnablePrefixDelegation { // each is asked for twice
				want = []string{"1", "1", "", ""}
			}
			if !slices.Equal(counts, want) || !slices.Equal(s.ipv6Of(s.one()), []string{"2001:db8:0:a::/80"}) {
				t.Errorf("%q, %v", counts, s.ipv6Of(s.one()))
			}
		})
	}
}

// AWS-34: what EC2 refuses, users see. An older release shows none of the prefixes that there are.
func TestIPv6PrefixThatCannotBe(t *testing.T) {
	s := newSubject(t, Config{}, region("m5.large", "i-1"))
	n, i := dualNode(nil), s.read().Instances["i-1"]
	to := cloudipam.Candidate{Interface: i.Interfaces[0].ID, Count: 1}
	if err := s.AssignIPv6Prefix(s.ctx(), n, i, to); err == nil || !strings.HasPrefix(err.Error(), "InvalidParameterValue: The subnet subnet-a does not have an IPv6 CIDR block") {
		t.Error(err)
	}

	s = newSubject(t, Config{}, dualRegion("t2.micro")) // two addresses of IPv6, or prefixes, an interface
	to.Interface = s.one().Interfaces[0].ID
	for k := range 3 {
		if err := s.AssignIPv6Prefix(s.ctx(), n, i, to); (err == nil) != (k < 2) {
			t.Errorf("prefix %d: %v", k, err)
		}
	}
	if list := s.ipv6Of(s.one()); len(list) != 2 {
		t.Errorf("%v", list)
	}
	s = newSubject(t, Config{}, s.ec2)
	s.session.Cluster.Release, _, _ = release.Parse("1.19")
	if list := s.ipv6Of(s.read().Instances["i-1"]); len(list) != 0 {
		t.Errorf("1.19 shows %v", list)
	}
}

// Number 43 of the contract's ipam-aws-eni.md; AWS-34, CIPAM-49: a node of 1.20 that asks for addresses of both families gets a prefix of
// IPv6, then addresses of IPv4, and is not given more after a restart.
func TestServerIPv6(t *testing.T) {
	s := newServer(t)
	s.ec2.AddIPv6("subnet-a", "2001:db8:0:a::/64")
	calls := record(s.ec2)
	o := s.start()
	name := s.run("m5.large", func(n *v2.CiliumNode) {
		n.Spec.IPAM.Pools.Requested = []v2.IPAMPoolRequest{{Pool: "default", Needed: v2.IPAMPoolDemand{IPv4Addrs: 8, IPv6Addrs: 8}}}
	})
	s.wantPool(name, 8)
	id := s.ec2.Interfaces()[0].ID
	operatortest.Eventually(t, "the prefix is in the status", func() bool {
		return slices.Equal(s.nodes.Read(name).Status.ENI.ENIs[id].IPv6Prefixes, []string{"2001:db8:0:a::/80"})
	})
	var order []string
	for _, r := range calls.all() {
		if strings.HasPrefix(r["Action"], "Assign") {
			order = append(order, r["Action"])
		}
	}
	if !slices.Equal(order, []string{"AssignIpv6Addresses", "AssignPrivateIpAddresses"}) {
		t.Errorf("%v", order)
	}
	o.Stop()
	s.start()
	if n := len(calls.of("AssignIpv6Addresses")); n != 1 || s.ec2.Changes() != 2 {
		t.Errorf("%d calls, %v", n, s.ec2.Calls())
	}
}
