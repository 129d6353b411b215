// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// CIPAM-44; number 4.5 of the contract's tenants.md: what is no address of a pod.
func TestFitAddresses(t *testing.T) {
	for text, want := range map[string]bool{
		"10.0.0.1": true, "192.0.2.7": true, "100.64.0.1": true,
		"not-an-ip": false, "999.1.1.1": false, "0.0.0.0": false, "::": false, "::1": false, "127.0.0.1": false, "169.254.169.10": false, "fe80::1": false,
		"fe80::1%eth0": false, "224.0.0.1": false, "255.255.255.255": false, "": false, "10.0.0.0/28": false, "fd00::1": false, "2001:db8::1": false,
		"::ffff:10.0.0.5": false, "010.0.0.5": false,
	} {
		if got := IsForPods(text); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
	for text, want := range map[string]bool{
		"2001:db8::/80": true, "fd00:0:0:1::/80": true,
		"fe80::/80": false, "ff02::/80": false, "::/80": false, "2001:db8::1/80": false, "2001:0db8::/80": false, "::ffff:10.0.0.0/124": false, "10.0.0.0/28": false, "2001:db8::1": false,
	} {
		if got := isPrefixForPods(text); got != want {
			t.Errorf("prefix %q: %t", text, got)
		}
	}
}

// showing is a cloud that shows instances. An interface whose detail is a prefix has this one of IPv4.
type showing struct {
	Provider
	instances map[string]*Instance
}

func (p *showing) Read(context.Context) (*State, error) { return &State{Instances: p.instances}, nil }

func (p *showing) ReadInstances(_ context.Context, ids []string) (map[string]*Instance, error) {
	found := map[string]*Instance{}
	for _, id := range ids {
		found[id] = p.instances[id]
	}
	return found, nil
}

func (p *showing) Limits(*Node, *Instance) (Limits, error) { return Limits{}, nil }

func (p *showing) Addresses(_ *Node, i *Instance) map[string]Address {
	all := map[string]Address{}
	for _, of := range i.Interfaces {
		prefix, _ := of.Detail.(string)
		for _, a := range of.Addresses {
			all[a] = Address{Resource: of.ID, Prefix: prefix}
		}
	}
	return all
}

// SetStatus has the interfaces as each of the clouds has them.
func (p *showing) SetStatus(_ *Node, i *Instance, status *v2.CiliumNodeStatus) {
	status.ENI.ENIs, status.AlibabaCloud.ENIs, status.Azure.Interfaces = map[string]v2.ENI{}, map[string]v2.AlibabaCloudENI{}, nil
	for _, of := range i.Interfaces {
		eni := v2.ENI{ID: of.ID, Addresses: of.Addresses, IPv6Prefixes: of.IPv6Prefixes}
		azure, alibaba := v2.AzureInterface{ID: of.ID}, v2.AlibabaCloudENI{NetworkInterfaceID: of.ID}
		if prefix, ok := of.Detail.(string); ok {
			eni.Prefixes = []string{prefix}
		}
		for _, a := range of.Addresses {
			azure.Addresses = append(azure.Addresses, v2.AzureAddress{IP: a})
			alibaba.PrivateIPSets = append(alibaba.PrivateIPSets, v2.AlibabaCloudPrivateIP{PrivateIPAddress: a})
		}
		for _, a := range of.Own {
			eni.IP, azure.IP, alibaba.PrimaryIPAddress = a, a, a
			alibaba.PrivateIPSets = append(alibaba.PrivateIPSets, v2.AlibabaCloudPrivateIP{PrivateIPAddress: a, Primary: true})
		}
		status.ENI.ENIs[of.ID], status.AlibabaCloud.ENIs[of.ID] = eni, alibaba
		status.Azure.Interfaces = append(status.Azure.Interfaces, azure)
	}
}

// viewed is the instance i-a, with one interface, beside others, and the CiliumNode of it.
type viewed struct {
	t    *testing.T
	p    *showing
	op   *Operator
	node *v2.CiliumNode
}

func newViewed(t *testing.T, is Interface, others ...Interface) *viewed {
	is.ID = "eni-a"
	p := &showing{instances: map[string]*Instance{"i-a": {ID: "i-a", Interfaces: []Interface{is}}}}
	for n, of := range others {
		of.ID = fmt.Sprintf("eni-%d", n)
		p.instances["i"+of.ID] = &Instance{ID: "i" + of.ID, Interfaces: []Interface{of}}
	}
	op, err := NewOperator(t.Context(), p, nil, Config{}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	v := &viewed{t, p, op, &v2.CiliumNode{}}
	v.node.Name, v.node.Spec.InstanceID = "a", "i-a"
	v.show(v.node)
	v.read()
	return v
}

func (v *viewed) show(n *v2.CiliumNode) {
	v.t.Helper()
	if err := v.op.Show(n); err != nil {
		v.t.Fatal(err)
	}
}

func (v *viewed) read() {
	v.t.Helper()
	if err := v.op.ReadAll(v.t.Context()); err != nil {
		v.t.Fatal(err)
	}
}

// withPools has the agent request addresses, and list CIDRs.
func (v *viewed) withPools(listed ...string) {
	v.node.Spec.IPAM.Pools.Requested = []v2.IPAMPoolRequest{{Pool: poolName, Needed: v2.IPAMPoolDemand{IPv4Addrs: 8}}}
	v.node.Spec.IPAM.Pools.Allocated = []v2.IPAMPoolAllocation{{Pool: poolName, CIDRs: listed}}
}

// snapshot is what is known of the node.
func (v *viewed) snapshot() snapshot {
	v.t.Helper()
	i, _, _ := v.op.c.cloud.get("i-a")
	n := &Node{Name: "a", InstanceID: "i-a", Spec: &v.node.Spec, Status: &v.node.Status}
	s, err := snapshotOf(v.p, modeWithPools, n, i.Instance, func(string) bool { return false }, v.op.c.isShared("i-a"))
	if err != nil {
		v.t.Fatal(err)
	}
	return s
}

// check compares what is written of the CiliumNode: the pool, and each list of addresses of the status, have the same.
func (v *viewed) check(what, addresses, prefixes, ipv6, unfit string) {
	v.t.Helper()
	s := v.snapshot()
	written := v.node.DeepCopy()
	v.op.c.setStatus(written, &nodeState{}, s)
	v.op.c.setSpec(written, &nodeState{}, s)
	eni, azure, alibaba := written.Status.ENI.ENIs["eni-a"], written.Status.Azure.Interfaces[0], written.Status.AlibabaCloud.ENIs["eni-a"]
	got := map[string][]string{"pool": slices.Sorted(maps.Keys(written.Spec.IPAM.Pool)), "eni": slices.Sorted(slices.Values(eni.Addresses))}
	for _, a := range azure.Addresses {
		got["azure"] = append(got["azure"], a.IP)
	}
	for _, a := range alibaba.PrivateIPSets {
		if !a.Primary {
			got["alibaba"] = append(got["alibaba"], a.PrivateIPAddress)
		}
	}
	for _, where := range []string{"pool", "eni", "azure", "alibaba"} {
		if slices.Sort(got[where]); strings.Join(got[where], " ") != addresses {
			v.t.Errorf("%s: %s has %q, want %s", what, where, got[where], addresses)
		}
	}
	if strings.Join(eni.Prefixes, " ") != prefixes || strings.Join(eni.IPv6Prefixes, " ") != ipv6 {
		v.t.Errorf("%s: prefixes %q and %q, want %q and %q", what, eni.Prefixes, eni.IPv6Prefixes, prefixes, ipv6)
	}
	if strings.Join(s.unfit, ", ") != unfit {
		v.t.Errorf("%s: reported is %q", what, s.unfit)
	}
	if own := s.instance.Interfaces[0].Own; len(own) > 0 && (eni.IP != own[0] || azure.IP != own[0] || alibaba.PrimaryIPAddress != own[0] || !alibaba.PrivateIPSets[len(alibaba.PrivateIPSets)-1].Primary) {
		v.t.Errorf("%s: the primary address is %q, %q, %q", what, eni.IP, azure.IP, alibaba.PrimaryIPAddress)
	}
}

// CIPAM-44, CIPAM-46, CIPAM-50, CIPAM-51; numbers 4.4 and 4.5 of the contract's tenants.md: the pool and the status leave out the same,
// whatever protocol the agent has, and all of it is reported. The primary address stays where it is one.
func TestLeftOut(t *testing.T) {
	for _, pools := range []bool{false, true} {
		v := newViewed(t, Interface{
			Addresses: []string{
				"10.0.0.5", "10.0.0.7", "10.0.0.8", "10.0.0.9", "10.0.0.33", "10.9.0.1", "10.0.0.4",
				"169.254.169.10", "0.0.0.0", "127.0.0.1", "not-an-ip", "::ffff:10.0.0.6", "fd00::1",
			},
			Own:          []string{"10.0.0.4"},
			IPv6Prefixes: []string{"2001:db8::/80", "2001:db8:0:0:1::/80", "2001:db8:1::/80", "fe80::/80"},
			Ranges:       []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("2001:db8::/64")},
		},
			Interface{Addresses: []string{"10.0.0.7", "::ffff:10.0.0.9", "10.0.0.32", "10.0.0.33"}, Own: []string{"10.0.0.8"}},
			Interface{Addresses: []string{"10.0.0.7"}, IPv6Prefixes: []string{"2001:0db8:0:0:1::/80"}})
		if pools {
			v.withPools()
		}
		v.check(fmt.Sprintf("pools: %t", pools), "10.0.0.5", "", "2001:db8::/80",
			"0.0.0.0, 10.0.0.33 (of several instances), 10.0.0.4 (the instance's own), 10.0.0.7 (of several instances), 10.0.0.8 (of several instances), "+
				"10.0.0.9 (of several instances), 10.9.0.1 (outside of the subnet), 127.0.0.1, 169.254.169.10, 2001:db8:0:0:1::/80 (of several instances), "+
				"2001:db8:1::/80 (outside of the subnet), ::ffff:10.0.0.6, fd00::1, fe80::/80, not-an-ip")
	}
}

// CIPAM-42, CIPAM-46, CIPAM-50; number 4.4 of the contract's tenants.md: what the CiliumNode has stays, unless no pod can have it.
func TestWhatANodeHasStays(t *testing.T) {
	is := Interface{Addresses: []string{"10.0.0.7", "10.9.0.1", "127.0.0.1"}, IPv6Prefixes: []string{"2001:db8::/80"}, Ranges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}}
	other := Interface{Addresses: []string{"10.0.0.7"}, IPv6Prefixes: []string{"2001:db8::/80"}}
	const unfit = "10.0.0.7 (of several instances), 10.9.0.1 (outside of the subnet), 127.0.0.1, 2001:db8::/80 (of several instances)"
	for what, test := range map[string]struct {
		edit func(*viewed)
		want string
		ipv6 string
	}{
		"nothing":     {func(*viewed) {}, "", ""},
		"in the pool": {func(v *viewed) { v.node.Spec.IPAM.Pool = map[string]v2.AllocationIP{"10.0.0.7": {}, "127.0.0.1": {}} }, "10.0.0.7", ""},
		"used":        {func(v *viewed) { v.node.Status.IPAM.Used = map[string]v2.AllocationIP{"10.9.0.1": {}, "127.0.0.1": {}} }, "10.9.0.1", ""},
		"listed":      {func(v *viewed) { v.withPools("10.0.0.7/32", "2001:db8::/80", "127.0.0.1/32") }, "10.0.0.7", "2001:db8::/80"},
		"listed before 1.19": {func(v *viewed) {
			v.withPools("10.0.0.7/32")
			v.node.Status.IPAM.Used = map[string]v2.AllocationIP{"10.9.0.1": {}}
		}, "10.9.0.1", ""},
	} {
		v := newViewed(t, is, other)
		test.edit(v)
		v.check(what, test.want, "", test.ipv6, unfit)
	}
}

// CIPAM-46: an address that is shown once again is given, and nothing is kept of instances that are forgotten.
func TestSharedForAMoment(t *testing.T) {
	v := newViewed(t, Interface{Addresses: []string{"10.0.0.1", "10.0.0.2"}}, Interface{Addresses: []string{"10.0.0.1", "10.0.0.3"}}, Interface{Own: []string{"10.0.0.1"}})
	v.check("of three", "10.0.0.2", "", "", "10.0.0.1 (of several instances)")
	v.p.instances["ieni-0"] = &Instance{ID: "ieni-0", Interfaces: []Interface{{Addresses: []string{"10.0.0.3"}}}}
	v.read()
	v.check("of two", "10.0.0.2", "", "", "10.0.0.1 (of several instances)")
	cloud := v.op.c.cloud
	v.p.instances["ieni-1"] = nil
	cloud.want("ieni-1")
	if _, err := cloud.readWanted(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.check("of one", "10.0.0.1 10.0.0.2", "", "", "")
	v.p.instances["ieni-0"] = &Instance{ID: "ieni-0", Interfaces: []Interface{{Addresses: []string{"10.0.0.1"}}}}
	v.read()
	cloud.outdate("ieni-0", time.Now())
	if _, known, _ := cloud.get("ieni-0"); known {
		t.Error("an instance is used before it is read again")
	}
	v.check("of one that is to be read again", "10.0.0.2", "", "", "10.0.0.1 (of several instances)")
	for _, id := range []string{"i-a", "ieni-0", "ieni-1"} {
		cloud.forget(id)
	}
	if len(cloud.holders.first)+len(cloud.holders.more) != 0 {
		t.Errorf("%v is kept of instances that are forgotten", cloud.holders)
	}
}

// CIPAM-46: an agent with pools uses a prefix as a whole, so all of it is left out; others have the addresses that are theirs alone.
func TestSharedAddressOfAPrefix(t *testing.T) {
	is := Interface{Addresses: inIPv4("10.0.0.32/30"), Detail: "10.0.0.32/30"}
	other := Interface{Own: []string{"10.0.0.34"}}
	const unfit = "10.0.0.34 (of several instances)"
	v := newViewed(t, is, other)
	v.check("addresses", "10.0.0.32 10.0.0.33 10.0.0.35", "", "", unfit)
	v.withPools()
	v.check("pools", "", "", "", unfit)
	v.withPools("10.0.0.32/30")
	v.check("listed", "10.0.0.32 10.0.0.33 10.0.0.34 10.0.0.35", "10.0.0.32/30", "", unfit)
}

// CIPAM-46: other networks may have the same addresses, but not for nodes of this cluster.
func TestNetworksWithTheSameAddresses(t *testing.T) {
	v := newViewed(t, Interface{Network: "vpc-1", Addresses: []string{"10.0.0.1", "10.0.0.2"}}, Interface{Network: "vpc-2", Addresses: []string{"10.0.0.1"}}, Interface{Network: "vpc-1", Own: []string{"10.0.0.2"}})
	v.check("no node", "10.0.0.1", "", "", "10.0.0.2 (of several instances)")
	b := &v2.CiliumNode{}
	b.Name, b.Spec.InstanceID = "b", "ieni-0"
	v.show(b)
	v.check("a node", "", "", "", "10.0.0.1 (of several instances), 10.0.0.2 (of several instances)")
}
