// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package aws

import (
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
	// An interface can have both. One that has got single addresses because its subnet had no prefix gets prefixes once there are some.
	v.delegated = c.AWSEnablePrefixDelegation && !v.spec.DisablePrefixDelegation && v.limit.supportsPrefixes()
	return v, true
}

func eniOf(of cloudipam.Interface) *eni { return of.Detail.(*eni) }

// firstOf is the interface that an instance was started with, nil if it is not known.
func firstOf(i *cloudipam.Instance) *eni {
	for _, of := range i.Interfaces {
		if e := eniOf(of); e.Number == 0 && e.card == 0 {
			return e
		}
	}
	return nil
}

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
func (v view) unused(e *eni) int { return v.freeSlots(e) * v.unit() }

func (v view) freeSlots(e *eni) int { return max(0, v.slots()-e.slots()) }

// singles are how many of count addresses an interface has slots for if they are single ones.
func (v view) singles(id string, count int) int {
	for _, of := range v.instance.Interfaces {
		if of.ID == id {
			return min(count, v.freeSlots(eniOf(of)))
		}
	}
	return count
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

// emptySlots is how many interfaces can be attached, at the device indexes that the node wants. They are all of the first network card.
func (v view) emptySlots() int {
	free := min(v.limit.interfaces-len(v.instance.Interfaces), len(v.freeIndexes()))
	if v.limit.firstCard > 0 {
		onCard := 0
		for _, of := range v.instance.Interfaces {
			if eniOf(of).card == 0 {
				onCard++
			}
		}
		free = min(free, v.limit.firstCard-onCard)
	}
	return max(0, free)
}

// freeIndexes are the device indexes of the first network card without an interface, in order.
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

// securityGroup is a group that interfaces can have.
type securityGroup struct {
	id, vpc string
	tags    map[string]string
}

// chooseGroups are the security groups of a new interface, in order. unmatched is that no group has the tags that the node wants.
func (v view) chooseGroups(all []securityGroup, vpc string) (ids []string, unmatched bool, err error) {
	if len(v.spec.SecurityGroups) > 0 {
		return slices.Sorted(slices.Values(v.spec.SecurityGroups)), false, nil
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
	if e := firstOf(v.instance); e != nil && len(e.SecurityGroups) > 0 {
		return slices.Sorted(slices.Values(e.SecurityGroups)), unmatched, nil
	}
	return nil, unmatched, &cloudipam.NodeError{Status: "unableToGetSecurityGroups", Text: "no security groups for interface creation: neither the node nor its first interface has some"}
}

// order is how much to ask for of an interface: addresses, or prefixes. A new one may get a prefix of IPv6, too.
type order struct {
	addresses, prefixes int
	ipv6                bool
}

// orderOf is what count addresses are asked for as, of an interface in a subnet with free addresses.
func (v view) orderOf(count, free int) order {
	count = min(count, free-1) // the primary address is one
	if v.delegated {
		return order{prefixes: max(1, min((count+prefixSize-1)/prefixSize, v.slots()))}
	}
	return order{addresses: min(count, v.slots())}
}
