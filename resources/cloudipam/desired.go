// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import (
	"maps"
	"net/netip"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// snapshot is what is known of a node, and what follows from it.
type snapshot struct {
	node     *Node
	instance *Instance
	limits   Limits
	has      map[string]Address // of the cloud, without detached ones
	back     []string           // that the agent has returned
	unfit    []string           // that the cloud shows, and that no pod can have, or that other instances have, too
	watermarks
}

// snapshotOf computes the numbers of a node. isShared says which addresses the cloud shows of other instances, too: what is new of
// these is given to none (CIPAM-46).
func snapshotOf(p Provider, n *Node, i *Instance, isDetached, isShared func(string) bool) (s snapshot, err error) {
	s = snapshot{node: n, instance: i}
	if s.limits, err = p.Limits(n, i); err != nil {
		return s, err
	}
	s.has = p.Addresses(n, i)
	for a := range s.has {
		_, holds := n.Spec.IPAM.Pool[a]
		switch {
		case !isFit(a):
			s.unfit = append(s.unfit, a)
			delete(s.has, a)
		case isShared(a):
			if s.unfit = append(s.unfit, a+" (of several instances)"); !holds {
				delete(s.has, a)
			}
		}
	}
	maps.DeleteFunc(s.has, func(a string, _ Address) bool { return isDetached(a) })
	s.back = returned(&n.Spec.IPAM, s.has)
	s.watermarks = newWatermarks(&n.Spec.IPAM, s.limits)
	s.returned = len(s.back)
	s.available = len(s.has) - len(s.back)
	s.used = len(n.Status.IPAM.Used)
	if r, ok := requested(&n.Spec.IPAM); ok {
		s.used = max(s.used, r-s.preAllocate)
	}
	s.blocked = max(s.used, s.usedPrefixes())
	return s, nil
}

// isFit reports whether a text is an address that a pod can have (CIPAM-44).
func isFit(text string) bool {
	a, err := netip.ParseAddr(text)
	return err == nil && a.Zone() == "" && a.IsGlobalUnicast()
}

// usedPrefixes is the number of used addresses, with all of a prefix that has one.
func (s snapshot) usedPrefixes() (n int) {
	used := map[string]bool{}
	for a, of := range s.has {
		if s.isUsed(a) && of.Prefix != "" {
			used[of.Prefix] = true
		}
	}
	for a, of := range s.has {
		if used[of.Prefix] || of.Prefix == "" && s.isUsed(a) {
			n++
		}
	}
	return n
}

func (s snapshot) isUsed(address string) bool {
	_, used := s.node.Status.IPAM.Used[address]
	return used
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

// pool is the desired spec.ipam.pool. Owners are the agent's.
func (s snapshot) pool(was map[string]v2.AllocationIP, isDetached func(string) bool) map[string]v2.AllocationIP {
	pool := make(map[string]v2.AllocationIP, len(s.has))
	for a, of := range s.has {
		if !isDetached(a) {
			pool[a] = v2.AllocationIP{Owner: was[a].Owner, Resource: of.Resource}
		}
	}
	if len(pool) == 0 {
		return nil
	}
	return pool
}
