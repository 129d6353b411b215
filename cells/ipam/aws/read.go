// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package aws

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/cluster/release"
)

// eni is an interface. It is not changed.
type eni struct {
	v2.ENI            // as in the status of the CiliumNode
	singles  []string // secondary addresses, without those of prefixes
	odd      []string // what EC2 shows as addresses and prefixes, and is none
	oddIPv6  []string // the same of prefixes of IPv6, which take no slot of the others
	instance string
	card     int
	attached bool
}

// slots are how many secondary addresses and prefixes it has.
func (e *eni) slots() int { return len(e.singles) + len(e.Prefixes) + len(e.odd) }

// Key implements cloudipam.Listed.
func (e *eni) Key() (id, instance string) { return e.ID, e.instance }

// Holds implements cloudipam.Listed.
func (e *eni) Holds() (primary string, addresses, prefixes []string) {
	return e.IP, e.singles, slices.Concat(e.Prefixes, e.IPv6Prefixes)
}

// With implements cloudipam.Listed. The copy is to be listed.
func (e *eni) With(addresses, prefixes []string) *eni {
	of := *e
	of.singles = slices.Clone(addresses)
	of.Prefixes, of.IPv6Prefixes = byFamily(prefixes)
	return &of
}

// account is what interfaces refer to: it changes rarely.
type account struct {
	vpcs     map[string]v2.AWSVPC
	subnets  map[string]cloudipam.Subnet
	routes   routes
	groups   []securityGroup
	limits   limits
	limitsAt time.Time // when they were read
}

// readAccount reads VPCs, subnets, security groups, route tables and the limits of instance types.
func (p *provider) readAccount(ctx context.Context) (*account, error) {
	vpcs, err := p.session.vpcs(ctx)
	if err != nil {
		return nil, err
	}
	subnets, err := p.session.subnets(ctx)
	if err != nil {
		return nil, err
	}
	groups, err := p.session.securityGroups(ctx)
	if err != nil {
		return nil, err
	}
	a := &account{vpcs: map[string]v2.AWSVPC{}, subnets: map[string]cloudipam.Subnet{}}
	if a.limits, a.limitsAt, err = p.readLimits(ctx); err != nil {
		return nil, err
	}
	if a.routes, err = p.readRoutes(ctx); err != nil {
		return nil, err
	}
	for _, v := range vpcs {
		a.vpcs[sdk.ToString(v.VpcId)] = vpcOf(v)
	}
	for _, s := range subnets {
		d := &subnetDetail{vpc: sdk.ToString(s.VpcId), cidr: sdk.ToString(s.CidrBlock), ranges: rangesOf(s), tags: tagMap(s.Tags)}
		id := sdk.ToString(s.SubnetId)
		d.eligible, d.routes = p.isEligible(id, d.tags), a.routes.of(id, d.vpc)
		a.subnets[id] = cloudipam.Subnet{ID: id, Zone: sdk.ToString(s.AvailabilityZone), Free: int(sdk.ToInt32(s.AvailableIpAddressCount)), Detail: d}
	}
	for _, g := range groups {
		a.groups = append(a.groups, securityGroup{sdk.ToString(g.GroupId), sdk.ToString(g.VpcId), tagMap(g.Tags)})
	}
	return a, nil
}

// rangesOf are the ranges of a subnet, of both families.
func rangesOf(s types.Subnet) (ranges []netip.Prefix) {
	texts := []string{sdk.ToString(s.CidrBlock)}
	for _, of := range s.Ipv6CidrBlockAssociationSet {
		texts = append(texts, sdk.ToString(of.Ipv6CidrBlock))
	}
	for _, text := range texts {
		if r, err := netip.ParsePrefix(text); err == nil {
			ranges = append(ranges, r)
		}
	}
	return ranges
}

// isEligible reports whether interfaces can be created in a subnet, by the filters.
func (p *provider) isEligible(id string, tags map[string]string) bool {
	c := p.config
	return (len(c.SubnetIDsFilter) == 0 || slices.Contains(c.SubnetIDsFilter, id)) && hasTags(tags, c.SubnetTagsFilter)
}

func vpcOf(v types.Vpc) v2.AWSVPC {
	of := v2.AWSVPC{ID: sdk.ToString(v.VpcId), PrimaryCIDR: sdk.ToString(v.CidrBlock)}
	for _, c := range v.CidrBlockAssociationSet {
		associated := c.CidrBlockState == nil || c.CidrBlockState.State == "" || c.CidrBlockState.State == types.VpcCidrBlockStateCodeAssociated
		if cidr := sdk.ToString(c.CidrBlock); cidr != of.PrimaryCIDR && associated {
			of.CIDRs = append(of.CIDRs, cidr)
		}
	}
	slices.Sort(of.CIDRs)
	return of
}

// eniOfEC2 returns nil for an interface that is not attached to an instance.
func (p *provider) eniOfEC2(n types.NetworkInterface, a *account) *eni {
	at := n.Attachment
	if at == nil || sdk.ToString(at.InstanceId) == "" || at.Status == types.AttachmentStatusDetached || sdk.ToString(n.NetworkInterfaceId) == "" {
		return nil
	}
	e := p.describe(n, a)
	e.instance = *at.InstanceId
	e.Number, e.card = int(sdk.ToInt32(at.DeviceIndex)), int(sdk.ToInt32(at.NetworkCardIndex))
	e.attached = at.Status != types.AttachmentStatusDetaching
	return e
}

// describe makes an interface of what EC2 says of it, without its attachment. It is to be listed.
func (p *provider) describe(n types.NetworkInterface, a *account) *eni {
	e := &eni{ENI: v2.ENI{ID: sdk.ToString(n.NetworkInterfaceId), MAC: sdk.ToString(n.MacAddress), Description: sdk.ToString(n.Description), Tags: tagMap(n.TagSet)}}
	e.Subnet.ID, e.VPC = sdk.ToString(n.SubnetId), v2.AWSVPC{ID: sdk.ToString(n.VpcId)}
	if d, ok := a.subnets[e.Subnet.ID].Detail.(*subnetDetail); ok {
		e.Subnet.CIDR = d.cidr
	}
	if v, ok := a.vpcs[e.VPC.ID]; ok {
		e.VPC = v
	}
	for _, g := range n.Groups {
		e.SecurityGroups = append(e.SecurityGroups, sdk.ToString(g.GroupId))
	}
	e.addAddresses(n)
	if release.IPv6PrefixesOfInterfaces.In(p.session.Cluster.Release) {
		e.addIPv6(n)
	}
	return e
}

// addAddresses takes over those that are addresses. A public one may be missing where something is associated: that of a carrier.
func (e *eni) addAddresses(n types.NetworkInterface) {
	isFit := func(text string, fits bool) bool {
		if text != "" && !fits && !slices.Contains(e.odd, text) {
			e.odd = append(e.odd, text)
		}
		return text != "" && fits
	}
	if ip := sdk.ToString(n.PrivateIpAddress); isFit(ip, cloudipam.IsForPods(ip)) {
		e.IP = ip
	}
	for _, address := range n.PrivateIpAddresses {
		switch ip := sdk.ToString(address.PrivateIpAddress); {
		case !isFit(ip, cloudipam.IsForPods(ip)):
		case sdk.ToBool(address.Primary):
			e.IP = cmp.Or(e.IP, ip)
		default:
			e.singles = append(e.singles, ip)
		}
	}
	for _, of := range n.Ipv4Prefixes {
		if prefix := sdk.ToString(of.Ipv4Prefix); isFit(prefix, len(addressesOf(prefix)) > 0) {
			e.Prefixes = append(e.Prefixes, prefix)
		}
	}
	if n.Association != nil {
		if ip := sdk.ToString(n.Association.PublicIp); isFit(ip, cloudipam.IsForPods(ip)) {
			e.PublicIP = ip
		}
	}
}

// addIPv6 takes over the prefixes of IPv6.
func (e *eni) addIPv6(n types.NetworkInterface) {
	for _, of := range n.Ipv6Prefixes {
		switch prefix := sdk.ToString(of.Ipv6Prefix); {
		case isIPv6Prefix(prefix):
			e.IPv6Prefixes = append(e.IPv6Prefixes, prefix)
		case prefix != "":
			e.oddIPv6 = append(e.oddIPv6, prefix)
		}
	}
}

// list puts the addresses in order, as in the status: the primary one where pods can use it, single ones, those of prefixes.
func (p *provider) list(e *eni) {
	slices.SortFunc(e.singles, compareAddresses)
	e.singles = slices.Compact(e.singles)
	slices.SortFunc(e.Prefixes, compareAddresses)
	e.Prefixes = slices.Compact(e.Prefixes)
	slices.SortFunc(e.IPv6Prefixes, compareAddresses)
	e.IPv6Prefixes = slices.Compact(e.IPv6Prefixes)
	e.Addresses = nil
	if p.config.AWSUsePrimaryAddress {
		e.Addresses = append(e.Addresses, e.IP)
	}
	e.Addresses = append(e.Addresses, e.singles...)
	for _, prefix := range e.Prefixes {
		e.Addresses = append(e.Addresses, addressesOf(prefix)...)
	}
}

// compareAddresses compares addresses or prefixes by their first address.
func compareAddresses(a, b string) int {
	parse := func(text string) netip.Addr {
		first, _, _ := strings.Cut(text, "/")
		ip, _ := netip.ParseAddr(first) // what is none comes first, and in the order of its text
		return ip
	}
	return cmp.Or(parse(a).Compare(parse(b)), cmp.Compare(a, b))
}

// addressesOf are all addresses of a prefix of IPv4 of at most 256 addresses, none if pods cannot have them.
func addressesOf(prefix string) (list []string) {
	p, err := netip.ParsePrefix(prefix)
	if err != nil || !p.Addr().Is4() || p.Bits() < 24 || p != p.Masked() || !p.Addr().IsGlobalUnicast() {
		return nil
	}
	for ip := p.Addr(); p.Contains(ip); ip = ip.Next() {
		list = append(list, ip.String())
	}
	return list
}

// interfaceOf is an interface for the engine.
func (p *provider) interfaceOf(e *eni, a *account) cloudipam.Interface {
	i := cloudipam.Interface{ID: e.ID, Subnet: e.Subnet.ID, Addresses: e.Addresses, IPv6Prefixes: e.IPv6Prefixes, Network: e.VPC.ID, Detail: e}
	if !p.config.AWSUsePrimaryAddress {
		i.Own = []string{e.IP}
	}
	if d, ok := a.subnets[e.Subnet.ID].Detail.(*subnetDetail); ok {
		i.Ranges = d.ranges
	}
	return i
}

// instancesOf groups interfaces by their instances. One that has no address of IPv4 is left out. odd is what is no address, by interface.
func (p *provider) instancesOf(list []types.NetworkInterface, a *account) (all map[string]*cloudipam.Instance, odd map[string][]string) {
	byInstance := map[string]map[string]*eni{}
	odd = map[string][]string{}
	for _, n := range list {
		e := p.eniOfEC2(n, a)
		if e == nil {
			continue
		}
		if all := slices.Concat(e.odd, e.oddIPv6); len(all) > 0 {
			odd[e.ID] = all
		}
		if e.IP == "" {
			continue
		}
		if byInstance[e.instance] == nil {
			byInstance[e.instance] = map[string]*eni{}
		}
		byInstance[e.instance][e.ID] = e
	}
	p.recent.Complete(byInstance, time.Now())
	d := &detail{limits: a.limits}
	all = map[string]*cloudipam.Instance{}
	for id, enis := range byInstance {
		i := &cloudipam.Instance{ID: id, Detail: d}
		for _, e := range enis {
			p.list(e)
			i.Interfaces = append(i.Interfaces, p.interfaceOf(e, a))
		}
		slices.SortFunc(i.Interfaces, func(a, b cloudipam.Interface) int {
			x, y := eniOf(a), eniOf(b)
			return cmp.Or(cmp.Compare(x.card, y.card), cmp.Compare(x.Number, y.Number), cmp.Compare(x.ID, y.ID))
		})
		all[id] = i
	}
	return all, odd
}
