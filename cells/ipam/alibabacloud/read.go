// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package alibabacloud

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
)

// eni is an interface. It is not changed.
type eni struct {
	v2.AlibabaCloudENI // as in the status of the CiliumNode
	status             string
	// unreadable are what ECS lists as addresses, and is none: an agent from 1.20 on could not read the status.
	unreadable []string
}

// States and types of interfaces.
const (
	inUse     = "InUse"
	available = "Available"
	primary   = "Primary"
	secondary = "Secondary"
)

// Key implements cloudipam.Listed.
func (e *eni) Key() (id, instance string) { return e.NetworkInterfaceID, e.InstanceID }

// Holds implements cloudipam.Listed.
func (e *eni) Holds() (primary string, addresses, prefixes []string) {
	for _, a := range e.PrivateIPSets {
		if !a.Primary {
			addresses = append(addresses, a.PrivateIPAddress)
		}
	}
	return e.PrimaryIPAddress, addresses, nil
}

// With implements cloudipam.Listed. The primary address comes first, then the others in order.
func (e *eni) With(addresses, _ []string) *eni {
	of := *e
	of.PrivateIPSets = nil
	if e.PrimaryIPAddress != "" {
		of.PrivateIPSets = append(of.PrivateIPSets, v2.AlibabaCloudPrivateIP{PrivateIPAddress: e.PrimaryIPAddress, Primary: true})
	}
	addresses = slices.SortedFunc(slices.Values(addresses), compareAddresses)
	for _, a := range slices.Compact(addresses) {
		of.PrivateIPSets = append(of.PrivateIPSets, v2.AlibabaCloudPrivateIP{PrivateIPAddress: a})
	}
	return &of
}

// all are the addresses, the primary one among them.
func (e *eni) all() (list []string) {
	for _, a := range e.PrivateIPSets {
		list = append(list, a.PrivateIPAddress)
	}
	return list
}

func compareAddresses(a, b string) int {
	parse := func(text string) netip.Addr {
		ip, _ := netip.ParseAddr(text) // what is none comes first, and in the order of its text
		return ip
	}
	return cmp.Or(parse(a).Compare(parse(b)), cmp.Compare(a, b))
}

// account is what interfaces refer to: it changes rarely.
type account struct {
	vpc      string // of the nodes
	vpcs     map[string]v2.AlibabaCloudVPC
	subnets  map[string]cloudipam.Subnet
	groups   []securityGroup
	limits   limits
	limitsAt time.Time // when they were read
	pages    int       // of a list of all interfaces
}

// readAccount reads the VPC, its vSwitches and security groups, and the limits of instance types.
func (p *provider) readAccount(ctx context.Context) (*account, error) {
	b, err := p.session.begin(ctx)
	if err != nil {
		return nil, err
	}
	vpcs, err := p.session.vpcs(ctx, b.vpc)
	if err != nil {
		return nil, err
	}
	if len(vpcs) == 0 {
		return nil, fmt.Errorf("VPC %s does not exist in region %s, or the operator's RAM identity may not read it: set --alibaba-cloud-vpc-id, or allow vpc:DescribeVpcs", b.vpc, b.region)
	}
	vSwitches, err := p.session.vSwitches(ctx, b.vpc)
	if err != nil {
		return nil, err
	}
	groups, err := p.session.securityGroups(ctx, b.vpc)
	if err != nil {
		return nil, err
	}
	a := &account{vpc: b.vpc, vpcs: map[string]v2.AlibabaCloudVPC{}, subnets: map[string]cloudipam.Subnet{}}
	if a.limits, a.limitsAt, err = p.readLimits(ctx); err != nil {
		return nil, err
	}
	for _, v := range vpcs {
		of := v2.AlibabaCloudVPC{VPCID: v.VpcID, CIDRBlock: v.CidrBlock, IPv6CIDRBlock: v.Ipv6CidrBlock, SecondaryCIDRs: v.SecondaryCidrBlocks.SecondaryCidrBlock}
		slices.Sort(of.SecondaryCIDRs)
		if err := checkRanges(of); err != nil {
			return nil, err
		}
		a.vpcs[v.VpcID] = of
	}
	for _, s := range vSwitches {
		a.subnets[s.VSwitchID] = cloudipam.Subnet{
			ID: s.VSwitchID, Zone: s.ZoneID, Free: s.AvailableIPAddressCount,
			Detail: &vSwitch{vpc: s.VpcID, cidr: s.CidrBlock, ipv6: s.Ipv6CidrBlock, tags: tagMap(s.Tags.Tag)},
		}
	}
	for _, g := range groups {
		a.groups = append(a.groups, securityGroup{g.SecurityGroupID, g.VpcID, tagMap(g.Tags.Tag)})
	}
	return a, nil
}

// checkRanges returns an error for a VPC with a range that is none: agents from 1.20 on could not read what is published of it.
func checkRanges(v v2.AlibabaCloudVPC) error {
	ranges := append([]string{v.CIDRBlock}, v.SecondaryCIDRs...)
	if v.IPv6CIDRBlock != "" {
		ranges = append(ranges, v.IPv6CIDRBlock)
	}
	for _, text := range ranges {
		if _, err := netip.ParsePrefix(text); err != nil {
			return fmt.Errorf("VPC %s has %q among its ranges, which is no CIDR: correct the VPC, or name another one with --alibaba-cloud-vpc-id", v.VPCID, text)
		}
	}
	return nil
}

// typesInterval is how long the limits of instance types hold: ECS gets new types every few weeks.
const typesInterval = time.Hour

// readLimits reads the limits of instance types, unless it was done lately.
func (p *provider) readLimits(ctx context.Context) (limits, time.Time, error) {
	if last := p.last(); last != nil && time.Since(last.limitsAt) < typesInterval {
		return last.limits, last.limitsAt, nil
	}
	types, err := p.session.instanceTypes(ctx)
	if err != nil {
		return nil, time.Time{}, err
	}
	table := limits{}
	for _, t := range types {
		if t.EniQuantity > 0 && t.EniPrivateIPAddressQuantity > 0 {
			table[t.InstanceTypeID] = limit{t.EniQuantity, t.EniPrivateIPAddressQuantity}
		}
	}
	return table, time.Now(), nil
}

// describe makes an interface of what ECS says of it.
func (a *account) describe(n interfaceItem) *eni {
	e := &eni{status: n.Status, AlibabaCloudENI: v2.AlibabaCloudENI{
		NetworkInterfaceID: n.NetworkInterfaceID, MACAddress: n.MacAddress, Type: n.Type, InstanceID: n.InstanceID, ZoneID: n.ZoneID,
		SecurityGroupIDs: slices.Sorted(slices.Values(n.SecurityGroupIDs.SecurityGroupID)), PrimaryIPAddress: n.PrivateIPAddress, Tags: tagMap(n.Tags.Tag),
		VPC: v2.AlibabaCloudVPC{VPCID: n.VpcID}, VSwitch: v2.AlibabaCloudVSwitch{VSwitchID: n.VSwitchID},
	}}
	if v, ok := a.vpcs[n.VpcID]; ok {
		e.VPC = v
	}
	if d, ok := a.subnets[n.VSwitchID].Detail.(*vSwitch); ok {
		e.VSwitch.CIDRBlock, e.VSwitch.IPv6CIDRBlock = d.cidr, d.ipv6
	}
	if e.PrimaryIPAddress != "" && !cloudipam.IsForPods(e.PrimaryIPAddress) {
		e.PrimaryIPAddress = ""
	}
	var others []string
	for _, ip := range n.PrivateIPSets.PrivateIPSet {
		switch {
		case !cloudipam.IsForPods(ip.PrivateIPAddress):
			e.unreadable = append(e.unreadable, ip.PrivateIPAddress)
		case ip.Primary:
			e.PrimaryIPAddress = ip.PrivateIPAddress
		default:
			others = append(others, ip.PrivateIPAddress)
		}
	}
	return e.With(others, nil)
}

// instancesOf groups interfaces by their instances. Those that are attached to none are left out.
func (p *provider) instancesOf(list []interfaceItem, a *account) map[string]*cloudipam.Instance {
	byInstance := map[string]map[string]*eni{}
	for _, n := range list {
		if n.InstanceID == "" || n.NetworkInterfaceID == "" || n.Status == available {
			continue
		}
		if byInstance[n.InstanceID] == nil {
			byInstance[n.InstanceID] = map[string]*eni{}
		}
		byInstance[n.InstanceID][n.NetworkInterfaceID] = a.describe(n)
	}
	p.recent.Complete(byInstance, time.Now())
	d := &detail{a.limits}
	all := map[string]*cloudipam.Instance{}
	for id, enis := range byInstance {
		i := &cloudipam.Instance{ID: id, Detail: d}
		for _, e := range enis {
			i.Interfaces = append(i.Interfaces, a.interfaceOf(e))
		}
		slices.SortFunc(i.Interfaces, func(a, b cloudipam.Interface) int { return compareInterfaces(eniOf(a), eniOf(b)) })
		all[id] = i
	}
	return all
}

// interfaceOf is an interface for the engine, which reports what is no address.
func (a *account) interfaceOf(e *eni) cloudipam.Interface {
	i := cloudipam.Interface{ID: e.NetworkInterfaceID, Subnet: e.VSwitch.VSwitchID, Network: e.VPC.VPCID, Detail: e}
	all := append(e.all(), e.unreadable...)
	if i.Own = all; isForPods(e) {
		i.Own, i.Addresses = nil, all
	}
	if r, err := netip.ParsePrefix(e.VSwitch.CIDRBlock); err == nil {
		i.Ranges = []netip.Prefix{r}
	}
	return i
}

// compareInterfaces has the primary one first, and the others in the order in which they were created here.
func compareInterfaces(a, b *eni) int {
	rank := func(e *eni) int {
		index, err := strconv.Atoi(e.Tags[indexTag])
		switch {
		case e.Type == primary:
			return -1
		case err != nil:
			return maxIndex + 1
		}
		return index
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.NetworkInterfaceID, b.NetworkInterfaceID))
}
