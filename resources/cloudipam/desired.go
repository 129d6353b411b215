// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import (
	"maps"
	"slices"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// snapshot is what is known of a node, and what follows from it.
type snapshot struct {
	node     *Node
	instance *Instance
	limits   Limits
	has      map[string]Address // of the cloud, without detached ones
	pools    bool               // the agent has the protocol of pools
	left     map[place]bool     // what the cloud shows, and what the node's pods do not get
	own      map[string]bool    // the instance's own addresses, which are not for pods
	unfit    []string           // the same, and what of it the node keeps
	watermarks
}

// snapshotOf computes the numbers of a node in an IPAM mode. isShared says which addresses and prefixes the cloud shows of other
// instances, too: what is new of these is given to none (CIPAM-46).
func snapshotOf(p Provider, mode string, n *Node, i *Instance, isDetached func(string) bool, isShared func(of Interface, text string) bool) (s snapshot, err error) {
	s = snapshot{node: n, instance: i, pools: hasPools(mode, &n.Spec.IPAM, &n.Status.IPAM)}
	if s.limits, err = p.Limits(n, i); err != nil {
		return s, err
	}
	s.has = p.Addresses(n, i)
	s.filter(isShared)
	maps.DeleteFunc(s.has, func(a string, _ Address) bool { return isDetached(a) })
	s.watermarks = newWatermarks(&n.Spec.IPAM, s.limits)
	s.available = len(s.has)
	s.used = len(n.Status.IPAM.Used)
	if s.pools {
		r, _ := requested(&n.Spec.IPAM)
		s.used = max(0, r-s.preAllocate)
	}
	return s, nil
}

func (s snapshot) isUsed(address string) bool {
	_, used := s.node.Status.IPAM.Used[address]
	return used
}

// inPrefix are the addresses of a prefix, in order.
func (s snapshot) inPrefix(prefix string) (list []string) {
	for a, of := range s.has {
		if of.Prefix == prefix {
			list = append(list, a)
		}
	}
	slices.Sort(list)
	return list
}

// unitsOf are the addresses that are given back together: those of each prefix, and single ones.
func (s snapshot) unitsOf(of Surplus) (units [][]string) {
	for _, prefix := range of.Prefixes {
		if all := s.inPrefix(prefix); len(all) > 0 {
			units = append(units, all)
		}
	}
	for _, a := range of.Addresses {
		if _, has := s.has[a]; has {
			units = append(units, []string{a})
		}
	}
	return units
}

// surplusOf is what one call gives back of addresses that are ready: the prefixes of an interface of which all addresses are, or else
// its single addresses. all are the addresses.
func (s snapshot) surplusOf(ready []string) (of Surplus, all []string) {
	isReady := map[string]bool{}
	for _, a := range ready {
		isReady[a] = true
	}
	for _, on := range s.instance.Interfaces {
		of, all = Surplus{Interface: on.ID, Subnet: on.Subnet}, nil
		var single []string
		whole := map[string]bool{}
		for _, a := range slices.Sorted(maps.Keys(isReady)) {
			switch is := s.has[a]; {
			case is.Resource != on.ID:
			case is.Prefix == "":
				single = append(single, a)
			case !whole[is.Prefix] && !slices.ContainsFunc(s.inPrefix(is.Prefix), func(a string) bool { return !isReady[a] }):
				whole[is.Prefix] = true
				of.Prefixes, all = append(of.Prefixes, is.Prefix), append(all, s.inPrefix(is.Prefix)...)
			}
		}
		if len(of.Prefixes) > 0 {
			return of, all
		}
		if len(single) > 0 {
			of.Addresses = single
			return of, single
		}
	}
	return Surplus{}, nil
}

// isInPool reports whether the pool has all addresses of the instance.
func (s snapshot) isInPool() bool {
	for a := range s.has {
		if _, is := s.node.Spec.IPAM.Pool[a]; !is {
			return false
		}
	}
	return true
}

// pool is the desired spec.ipam.pool, without addresses that are hidden from the agent. Owners are the agent's.
func (s snapshot) pool(was map[string]v2.AllocationIP, isHidden func(string) bool) map[string]v2.AllocationIP {
	pool := make(map[string]v2.AllocationIP, len(s.has))
	for a, of := range s.has {
		if !isHidden(a) {
			pool[a] = v2.AllocationIP{Owner: was[a].Owner, Resource: of.Resource}
		}
	}
	if len(pool) == 0 {
		return nil
	}
	return pool
}
