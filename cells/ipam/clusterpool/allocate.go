// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterpool

import (
	"net/netip"
	"slices"
)

// reconcileAll reconciles nodes in this order. CIDRs that any of them lists are reserved before new ones are allocated.
func (a *allocator) reconcileAll(nodes []*node) {
	for _, n := range nodes {
		if a.handling(n); !n.adopted && !n.SetAside {
			a.adopt(n)
		}
	}
	for _, n := range nodes {
		a.handling(n)
		a.claims.update(a, n)
	}
	for _, n := range nodes {
		a.reconcileNode(n)
	}
}

// reconcileNode reserves the CIDRs that a node lists, allocates missing ones, and records a refusal.
func (a *allocator) reconcileNode(n *node) {
	if a.handling(n); n.SetAside {
		a.claims.update(a, n)
		return
	}
	n.refusal = a.tryAllocate(n)
	switch pending := n.refusal.kind != 0; {
	case pending && !n.pending:
		a.pending = append(a.pending, n.Name)
	case !pending && n.pending:
		a.pending = without(a.pending, n.Name)
	}
	n.pending = n.refusal.kind != 0
}

func (a *allocator) tryAllocate(n *node) refusal {
	var r refusal
	if !n.adopted {
		r = a.adopt(n)
	}
	a.claims.update(a, n)
	switch {
	case n.Undecoded != "":
		return refusal{}
	case len(n.invalid) > 0:
		return refuseInvalid(n.invalid[0])
	case r.kind == 0:
		r = a.refuseChanges(n)
	}
	if r.kind != 0 || n.Deleting {
		return r
	}
	return a.fillFamilies(n)
}

// refuseChanges refuses CIDRs that a node lists and that are not allocated to it.
func (a *allocator) refuseChanges(n *node) refusal {
	for family, pools := range a.pools {
		cidrs, allocated := ofFamily(family, n.cidrs), ofFamily(family, n.allocated)
		switch {
		case within(cidrs, allocated):
		case len(pools) == 0:
			return refuseFamily(family, cidrs)
		default:
			return refuseChange(allocated, cidrs)
		}
	}
	return refusal{}
}

// adopt reserves the CIDRs that a node lists and that are not allocated to another node, even if that is only a part of
// them: a CIDR is not allocated again as long as a node lists it. The first refusal is returned, IPv4 before IPv6.
// A node with an empty or undecodable list keeps what is allocated to it.
func (a *allocator) adopt(n *node) (first refusal) {
	if len(n.PodCIDRs) == 0 && len(n.allocated) > 0 {
		n.adopted = n.Undecoded == ""
		return refusal{}
	}
	a.release(n)
	for family := range a.pools {
		if r := a.adoptFamily(n, family); first.kind == 0 {
			first = r
		}
	}
	n.adopted = first.kind == 0 && len(n.invalid) == 0 && len(n.allocated) > 0
	return first
}

func (a *allocator) adoptFamily(n *node, family int) (first refusal) {
	cidrs := ofFamily(family, n.cidrs)
	if len(cidrs) > 0 && len(a.pools[family]) == 0 {
		return refuseFamily(family, cidrs)
	}
	for _, c := range cidrs {
		if withinOne(c, n.allocated) { // listed twice
			continue
		}
		r := a.reserve(c, n)
		if r.kind == 0 {
			n.allocated = append(n.allocated, c)
		} else if first.kind == 0 {
			first = r
		}
	}
	return first
}

// reserve reserves the blocks of a CIDR that a node lists.
func (a *allocator) reserve(c netip.Prefix, n *node) refusal {
	pools := a.poolsOf(c)
	if len(pools) == 0 {
		return refuseNotConfigured(c)
	}
	for _, p := range pools {
		if p.oversized(c) {
			return refuseOversized(c, p)
		}
	}
	p := pools[0] // a CIDR that is not oversized overlaps one
	block := p.BlockOf(c)
	for _, owner := range a.blocks.Overlapping(block) {
		if owner != n.Name {
			return refuseTaken(c, p, owner)
		}
	}
	if i := slices.IndexFunc(n.allocated, c.Overlaps); i >= 0 {
		return refuseOverlap(c, n.allocated[i])
	}
	if !a.believesAll && slices.ContainsFunc(n.allocated, func(has netip.Prefix) bool { return p.prefix.Overlaps(has) && !p.BlockOf(has).Overlaps(block) }) {
		return refuseSurplus(c, p)
	}
	_ = a.blocks.Reserve(block, n.Name) // no other node has any of it
	a.touchShowers(block)
	a.moves++
	return refusal{}
}

// poolsOf are the pools that a CIDR overlaps.
func (a *allocator) poolsOf(c netip.Prefix) (pools []*pool) {
	for _, p := range a.pools[familyOf(c)] {
		if p.prefix.Overlaps(c) {
			pools = append(pools, p)
		}
	}
	return pools
}

// fillFamilies allocates a block of each missing family to a node: all or none.
func (a *allocator) fillFamilies(n *node) refusal {
	missing := a.missing(n.allocated)
	if len(n.allocated) == 0 && len(missing) == 0 {
		return refuseNode(n.Name)
	}
	a.claims.apply(a)
	var from []*pool
	for _, family := range missing {
		if b := a.claims.blockers[family]; b.exists {
			return refuseUndecoded(b.node)
		}
		i := slices.IndexFunc(a.pools[family], func(p *pool) bool { return a.ownBlock(p, n).IsValid() })
		if i < 0 {
			i = slices.IndexFunc(a.pools[family], func(p *pool) bool { return p.free() > 0 })
		}
		if i < 0 {
			return poolsExhausted
		}
		from = append(from, a.pools[family][i])
	}
	for _, p := range from {
		block, err := a.next(p, n)
		if err != nil {
			return poolsExhausted
		}
		n.allocated = append(n.allocated, block)
		a.moves++
	}
	n.allocated = sorted(n.allocated)
	n.adopted = true
	return refusal{}
}

// next allocates a block to a node.
func (a *allocator) next(p *pool, n *node) (netip.Prefix, error) {
	if own := a.ownBlock(p, n); own.IsValid() {
		return own, a.blocks.Reserve(own, n.Name)
	}
	return p.AllocateNext(n.Name)
}

// release releases the blocks of a node. Two of its CIDRs may be in one block.
func (a *allocator) release(n *node) {
	for _, c := range n.allocated {
		for _, p := range a.poolsOf(c) {
			a.blocks.Release(p.BlockOf(c), n.Name)
			a.touchShowers(p.BlockOf(c))
			a.moves++
		}
	}
	n.allocated = nil
}

// missing are the families that have pools and no CIDR in the list.
func (a *allocator) missing(cidrs []netip.Prefix) (families []int) {
	for family, pools := range a.pools {
		if len(pools) > 0 && len(ofFamily(family, cidrs)) == 0 {
			families = append(families, family)
		}
	}
	return families
}
