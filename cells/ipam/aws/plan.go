// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package aws

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
)

// prefixSize is the number of addresses of a prefix.
const prefixSize = 16

// detail is what else is known of an instance. It is not changed.
type detail struct {
	limits limits
}

// view is an instance with the wishes of its node.
type view struct {
	spec      *v2.ENISpec
	instance  *cloudipam.Instance
	limit     limit
	delegated bool // new addresses are prefixes
}

// viewOf returns false if the limits of the node's type are not known.
func (c Config) viewOf(n *cloudipam.Node, i *cloudipam.Instance) (view, bool) {
	v := view{spec: &n.Spec.ENI, instance: i}
	d, _ := i.Detail.(*detail)
	if d == nil || v.spec.InstanceType == "" {
		return v, false
	}
	var known bool
	if v.limit, known = d.limits[v.spec.InstanceType]; !known {
		return v, false
	}
	v.delegated = c.AWSEnablePrefixDelegation && !v.spec.DisablePrefixDelegation && v.limit.supportsPrefixes() &&
		!slices.ContainsFunc(i.Interfaces, func(of cloudipam.Interface) bool {
			e := eniOf(of)
			return len(e.singles) > 0 && len(e.Prefixes) == 0
		})
	return v, true
}

func eniOf(of cloudipam.Interface) *eni { return of.Detail.(*eni) }

// first is the device index of the first interface whose addresses pods can use.
func (v view) first() int {
	if v.spec.FirstInterfaceIndex == nil {
		return 0
	}
	return *v.spec.FirstInterfaceIndex
}

// isExcluded reports whether pods use no addresses of an interface.
func isExcluded(spec *v2.ENISpec, e *eni) bool {
	if spec.FirstInterfaceIndex != nil && e.Number < *spec.FirstInterfaceIndex {
		return true
	}
	return len(spec.ExcludeInterfaceTags) > 0 && hasTags(e.Tags, spec.ExcludeInterfaceTags)
}

func hasTags(tags, wanted map[string]string) bool {
	for key, value := range wanted {
		if of, has := tags[key]; !has || of != value {
			return false
		}
	}
	return true
}

// unit is how many addresses a slot of an interface is for.
func (v view) unit() int {
	if v.delegated {
		return prefixSize
	}
	return 1
}

// slots are how many secondary addresses or prefixes an interface can have.
func (v view) slots() int { return max(0, v.limit.ipv4-1) }

// unused is how many addresses can be assigned to an interface. A prefix takes the place of one address.
func (v view) unused(e *eni) int {
	return max(0, v.slots()-len(e.singles)-len(e.Prefixes)) * v.unit()
}

// capacity is how many addresses the pods of the node can have at most.
func (v view) capacity() int {
	usable := v.slots()
	if v.spec.UsePrimaryAddress {
		usable++
	}
	usable *= v.unit()
	n := v.limit.interfaces * usable
	for _, of := range v.instance.Interfaces {
		switch e := eniOf(of); {
		case isExcluded(v.spec, e):
			n -= usable
		case !v.delegated:
			n += len(e.Prefixes) * (prefixSize - 1)
		}
	}
	return max(0, n)
}

// emptySlots is how many interfaces can be attached, at the device indexes that the node wants.
func (v view) emptySlots() int {
	return max(0, min(v.limit.interfaces-len(v.instance.Interfaces), len(v.freeIndexes())))
}

// freeIndexes are the device indexes without an interface, in order.
func (v view) freeIndexes() (free []int) {
	taken := map[int]bool{}
	for _, of := range v.instance.Interfaces {
		if e := eniOf(of); e.card == 0 {
			taken[e.Number] = true
		}
	}
	for index := v.first(); index < v.limit.interfaces; index++ {
		if !taken[index] {
			free = append(free, index)
		}
	}
	return free
}

// limitsOf are the numbers of a node.
func (v view) limitsOf() cloudipam.Limits {
	own := max(0, v.limit.interfaces-v.first()) * v.slots() // 0 is for any number
	l := cloudipam.Limits{Addresses: own * v.unit(), Capacity: v.capacity(), PreAllocate: min(8, own), EmptySlots: v.emptySlots()}
	for _, of := range v.instance.Interfaces {
		if e := eniOf(of); !isExcluded(v.spec, e) && v.unused(e) > 0 {
			l.Interfaces++
		}
	}
	return l
}

// freeInterface is the first interface that has room, in a subnet that has free addresses.
func (v view) freeInterface(subnets map[string]cloudipam.Subnet) (cloudipam.Candidate, bool) {
	for _, of := range v.instance.Interfaces {
		e := eniOf(of)
		if isExcluded(v.spec, e) || !e.attached {
			continue
		}
		if count := min(v.unused(e), subnets[of.Subnet].Free); count > 0 {
			return cloudipam.Candidate{Interface: of.ID, Subnet: of.Subnet, Count: count}, true
		}
	}
	return cloudipam.Candidate{}, false
}

// releasable are addresses of the interface that has most of those that can be released. Prefixes are not.
func releasable(n *cloudipam.Node, i *cloudipam.Instance, isUsed func(string) bool, count int) (best cloudipam.Surplus) {
	for _, of := range slices.SortedFunc(slices.Values(i.Interfaces), func(a, b cloudipam.Interface) int { return cmp.Compare(a.ID, b.ID) }) {
		e := eniOf(of)
		if isExcluded(&n.Spec.ENI, e) || len(e.Prefixes) > 0 {
			continue
		}
		free := slices.DeleteFunc(slices.Clone(e.singles), isUsed)
		if free = free[:max(0, min(count, len(free)))]; len(free) > len(best.Addresses) {
			best = cloudipam.Surplus{Interface: of.ID, Subnet: of.Subnet, Addresses: free}
		}
	}
	return best
}

// subnetDetail is what else is known of a subnet.
type subnetDetail struct {
	vpc, cidr string
	tags      map[string]string
	eligible  bool // for new interfaces, by the filters
}

// home is the VPC and the zone of an instance: what the agent has written, or else those of the first interface.
func (v view) home(subnets map[string]cloudipam.Subnet) (vpc, zone string) {
	vpc, zone = v.spec.VPCID, v.spec.AvailabilityZone
	if len(v.instance.Interfaces) > 0 {
		first := v.instance.Interfaces[0]
		vpc, zone = cmp.Or(vpc, eniOf(first).VPC.ID), cmp.Or(zone, subnets[first.Subnet].Zone)
	}
	return vpc, zone
}

// chooseSubnet is the subnet for a new interface.
func (v view) chooseSubnet(subnets map[string]cloudipam.Subnet) (cloudipam.Subnet, error) {
	vpc, zone := v.home(subnets)
	most := func(matches func(cloudipam.Subnet, *subnetDetail) bool) (best cloudipam.Subnet) {
		for _, id := range slices.Sorted(maps.Keys(subnets)) {
			s := subnets[id]
			d, _ := s.Detail.(*subnetDetail)
			if d == nil || !d.eligible || d.vpc != vpc || s.Zone != zone || !matches(s, d) {
				continue
			}
			if best.ID == "" || s.Free > best.Free {
				best = s
			}
		}
		return best
	}
	var best cloudipam.Subnet
	switch {
	case len(v.spec.SubnetIDs) > 0:
		best = most(func(s cloudipam.Subnet, _ *subnetDetail) bool { return slices.Contains(v.spec.SubnetIDs, s.ID) })
	case len(v.spec.SubnetTags) > 0:
		best = most(func(_ cloudipam.Subnet, d *subnetDetail) bool { return hasTags(d.tags, v.spec.SubnetTags) })
	default:
		best = most(func(s cloudipam.Subnet, _ *subnetDetail) bool {
			return s.ID == v.spec.NodeSubnetID && s.Free >= v.limit.ipv4
		})
		if best.ID == "" {
			best = most(func(cloudipam.Subnet, *subnetDetail) bool { return true })
		}
	}
	if best.ID == "" {
		return best, &cloudipam.NodeError{Status: "unableToFindSubnet", Text: fmt.Sprintf(
			"No matching subnet available for interface creation (VPC=%s AZ=%s SubnetIDs=%v SubnetTags=%v)", vpc, zone, v.spec.SubnetIDs, v.spec.SubnetTags)}
	}
	if best.Free < 2 {
		return best, &cloudipam.NodeError{Status: "unableToFindSubnet", Text: fmt.Sprintf("subnet %s has no free addresses for another interface", best.ID)}
	}
	return best, nil
}

// securityGroup is a group that interfaces can have.
type securityGroup struct {
	id, vpc string
	tags    map[string]string
}

// chooseGroups are the security groups of a new interface. unmatched is that no group has the tags that the node wants.
func (v view) chooseGroups(all []securityGroup, vpc string) (ids []string, unmatched bool, err error) {
	if len(v.spec.SecurityGroups) > 0 {
		return v.spec.SecurityGroups, false, nil
	}
	if len(v.spec.SecurityGroupTags) > 0 {
		for _, g := range all {
			if g.vpc == vpc && hasTags(g.tags, v.spec.SecurityGroupTags) {
				ids = append(ids, g.id)
			}
		}
		if len(ids) > 0 {
			slices.Sort(ids)
			return ids, false, nil
		}
		unmatched = true
	}
	for _, of := range v.instance.Interfaces {
		if e := eniOf(of); e.Number == 0 && e.card == 0 && len(e.SecurityGroups) > 0 {
			return e.SecurityGroups, unmatched, nil
		}
	}
	return nil, unmatched, &cloudipam.NodeError{Status: "unableToGetSecurityGroups", Text: "no security groups for interface creation: neither the node nor its first interface has some"}
}

// order is how much to ask for of a new interface: addresses, or prefixes.
type order struct{ addresses, prefixes int }

// orderOf is what count addresses are asked for as, of an interface in a subnet with free addresses.
func (v view) orderOf(count, free int) order {
	count = min(count, free-1) // the primary address is one
	if v.delegated {
		return order{prefixes: max(1, min((count+prefixSize-1)/prefixSize, v.slots()))}
	}
	return order{addresses: min(count, v.slots())}
}
