// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package alibabacloud

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
)

const (
	// indexTag numbers the interfaces that are created for an instance.
	indexTag = "cilium-eni-index"
	maxIndex = 50
	// perCreate is how many addresses a new interface has at most.
	perCreate   = 10
	perAssign   = 49 // addresses in a request
	preAllocate = 8
)

// limit is how many interfaces an instance of a type can have, and how many IPv4 addresses each, the primary ones among them.
type limit struct{ adapters, ipv4 int }

// limits are those of instance types. They are not changed.
type limits map[string]limit

// detail is what else is known of an instance. It is not changed.
type detail struct{ limits limits }

// vSwitch is what else is known of a subnet.
type vSwitch struct {
	vpc, cidr, ipv6 string
	tags            map[string]string
}

// securityGroup is a group that interfaces can have.
type securityGroup struct {
	id, vpc string
	tags    map[string]string
}

// view is an instance with the wishes of its node.
type view struct {
	spec     *v2.AlibabaCloudSpec
	instance *cloudipam.Instance
	limit    limit
}

// viewOf returns false if the limits of the node's type are not known.
func viewOf(n *cloudipam.Node, i *cloudipam.Instance) (view, bool) {
	v := view{spec: &n.Spec.AlibabaCloud, instance: i}
	d, _ := i.Detail.(*detail)
	if d == nil || v.spec.InstanceType == "" {
		return v, false
	}
	var known bool
	v.limit, known = d.limits[v.spec.InstanceType]
	return v, known
}

func eniOf(of cloudipam.Interface) *eni { return of.Detail.(*eni) }

// isForPods reports whether pods use the addresses of an interface: never those of the primary one, nor of those that other
// programs use as trunks or members of trunks.
func isForPods(e *eni) bool { return e.Type == secondary }

// first is the primary interface, nil if it is not listed.
func (v view) first() *eni {
	for _, of := range v.instance.Interfaces {
		if e := eniOf(of); e.Type == primary {
			return e
		}
	}
	return nil
}

// unused is how many addresses can be assigned to an interface.
func (v view) unused(e *eni) int {
	if !isForPods(e) || e.status != inUse {
		return 0
	}
	return max(0, v.limit.ipv4-len(e.PrivateIPSets)-len(e.unreadable))
}

// limitsOf are the numbers of a node: all interfaces but the primary one are for pods.
func (v view) limitsOf() cloudipam.Limits {
	most := max(0, v.limit.adapters-1) * v.limit.ipv4
	l := cloudipam.Limits{Addresses: most, Capacity: most, PreAllocate: preAllocate, EmptySlots: max(0, v.limit.adapters-len(v.instance.Interfaces))}
	for _, of := range v.instance.Interfaces {
		if v.unused(eniOf(of)) > 0 {
			l.Interfaces++
		}
	}
	return l
}

// freeInterface is the first interface that has room, in a vSwitch that has free addresses.
func (v view) freeInterface(subnets map[string]cloudipam.Subnet) (cloudipam.Candidate, bool) {
	for _, of := range v.instance.Interfaces {
		if count := min(v.unused(eniOf(of)), subnets[of.Subnet].Free, perAssign); count > 0 {
			return cloudipam.Candidate{Interface: of.ID, Subnet: of.Subnet, Count: count}, true
		}
	}
	return cloudipam.Candidate{}, false
}

// exhausted is why there is no interface with room and a vSwitch with free addresses, nil if the instance is at its limits.
func (v view) exhausted(subnets map[string]cloudipam.Subnet) error {
	for _, of := range v.instance.Interfaces {
		if v.unused(eniOf(of)) == 0 {
			continue
		}
		if _, known := subnets[of.Subnet]; !known {
			return noSubnet("vSwitch %s of interface %s does not exist any more", of.Subnet, of.ID)
		}
		return noSubnet("vSwitch %s has no free addresses", of.Subnet)
	}
	return nil
}

func noSubnet(format string, args ...any) error {
	return &cloudipam.NodeError{Status: "unableToFindSubnet", Text: fmt.Sprintf(format, args...)}
}

// isUsable reports whether an address of an interface is in the pool. While an interface is being attached or detached it is if
// it was, or is used.
func isUsable(n *cloudipam.Node, e *eni, address string) bool {
	_, isUsed := n.Status.IPAM.Used[address]
	_, isInPool := n.Spec.IPAM.Pool[address]
	return e.status == inUse || isUsed || isInPool
}

// releasable are addresses of the interface that has most of those that can be released. Primary ones cannot.
func releasable(i *cloudipam.Instance, isUsed func(string) bool, count int) (best cloudipam.Surplus) {
	for _, of := range i.Interfaces {
		e := eniOf(of)
		if !isForPods(e) || e.status != inUse {
			continue
		}
		_, free, _ := e.Holds()
		free = slices.DeleteFunc(free, isUsed)
		if free = free[:max(0, min(count, len(free)))]; len(free) > len(best.Addresses) {
			best = cloudipam.Surplus{Interface: of.ID, Subnet: of.Subnet, Addresses: free}
		}
	}
	return best
}

// home is the VPC and the zone of an instance: what the agent has written, or else those of the primary interface.
func (v view) home() (vpcID, zone string) {
	vpcID, zone = v.spec.VPCID, v.spec.AvailabilityZone
	if e := v.first(); e != nil {
		vpcID, zone = cmp.Or(vpcID, e.VPC.VPCID), cmp.Or(zone, e.ZoneID)
	}
	return vpcID, zone
}

// chooseVSwitch is the vSwitch for a new interface: the one with most free addresses of those that the node wants.
func (v view) chooseVSwitch(subnets map[string]cloudipam.Subnet) (best cloudipam.Subnet, err error) {
	vpcID, zone := v.home()
	for _, id := range slices.Sorted(maps.Keys(subnets)) {
		s := subnets[id]
		d, _ := s.Detail.(*vSwitch)
		switch {
		case d == nil || d.vpc != vpcID || s.Zone != zone || s.Free <= best.Free:
		case len(v.spec.VSwitches) > 0:
			if slices.Contains(v.spec.VSwitches, id) {
				best = s
			}
		case hasTags(d.tags, v.spec.VSwitchTags):
			best = s
		}
	}
	if best.ID == "" {
		return best, noSubnet("no vSwitch has free addresses for another interface (VPC=%s zone=%s vswitches=%v vswitch-tags=%v)", vpcID, zone, v.spec.VSwitches, v.spec.VSwitchTags)
	}
	return best, nil
}

func hasTags(tags, wanted map[string]string) bool {
	for key, value := range wanted {
		if of, has := tags[key]; !has || of != value {
			return false
		}
	}
	return true
}

// chooseGroups are the security groups of a new interface. unmatched is that no group has the tags that the node wants.
func (v view) chooseGroups(all []securityGroup, vpcID string) (ids []string, unmatched bool, err error) {
	if len(v.spec.SecurityGroups) > 0 {
		return v.spec.SecurityGroups, false, nil
	}
	if len(v.spec.SecurityGroupTags) > 0 {
		for _, g := range all {
			if g.vpc == vpcID && hasTags(g.tags, v.spec.SecurityGroupTags) {
				ids = append(ids, g.id)
			}
		}
		if len(ids) > 0 {
			slices.Sort(ids)
			return ids, false, nil
		}
		unmatched = true
	}
	if e := v.first(); e != nil && len(e.SecurityGroupIDs) > 0 {
		return e.SecurityGroupIDs, unmatched, nil
	}
	return nil, unmatched, &cloudipam.NodeError{Status: "unableToGetSecurityGroups", Text: "no security groups for a new interface: neither the node nor its primary interface has some"}
}

// nextIndex is the lowest index that no interface of the instance has.
func (v view) nextIndex() (int, error) {
	taken := map[int]bool{}
	for _, of := range v.instance.Interfaces {
		text, has := eniOf(of).Tags[indexTag]
		if !has {
			continue
		}
		index, err := strconv.Atoi(text)
		if err != nil || index < 0 || index > maxIndex {
			return 0, &cloudipam.NodeError{Status: "unableToCreateENI", Text: fmt.Sprintf("interface %s has the tag %s=%s, which is no number from 0 to %d: correct or remove it", of.ID, indexTag, text, maxIndex)}
		}
		taken[index] = true
	}
	for index := 1; index < maxIndex; index++ {
		if !taken[index] {
			return index, nil
		}
	}
	return maxIndex, nil
}

// sizeOf is how many addresses a new interface in a vSwitch has.
func (v view) sizeOf(count int, in cloudipam.Subnet) int {
	return min(count, v.limit.ipv4, perCreate, in.Free)
}
