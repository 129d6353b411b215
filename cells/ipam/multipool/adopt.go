// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package multipool

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/skep-operator/skep/resources/domain/alloc"
	"github.com/skep-operator/skep/resources/domain/cidr"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
)

// entry is a CIDR that a node lists.
type entry struct {
	poolCIDR
	text    string
	valid   bool // agents can read it
	fate    fate
	problem string // "" if there is none
}

// fate is what becomes of a CIDR that a node lists.
type fate uint8

const (
	kept    fate = iota // it stays listed, and is not held: another writer has to correct it
	adopted             // it is held
	lost                // another node holds it, and it is not listed any more
)

func entriesOf(list []ciliumio.PoolAllocation) (entries []entry) {
	for _, of := range list {
		for _, text := range of.CIDRs {
			c, ok := cidr.Parse(text)
			entries = append(entries, entry{poolCIDR: poolCIDR{of.Pool, c}, text: text, valid: ok})
		}
	}
	slices.SortStableFunc(entries, func(d, e entry) int { // those that cover others first
		return cmp.Or(d.cidr.Bits()-e.cidr.Bits(), cmp.Compare(d.pool, e.pool))
	})
	return entries
}

// adopt releases what has vanished from a node's list, and lets it hold what it lists, or had lost and can have again.
func (a *allocator) adopt(n *node) {
	a.handling(n)
	if n.Undecoded == "" {
		n.known = true
		a.releaseVanished(n)
	}
	for i := range n.listed {
		a.adoptEntry(n, &n.listed[i])
	}
	a.adoptLost(n)
	a.updateClaim(n)
}

func (a *allocator) releaseVanished(n *node) {
	for _, h := range n.held {
		if h.seen && !n.lists[h.poolCIDR] {
			a.release(n, h)
		}
	}
}

// rank says how likely a pool has allocated a CIDR. One of the size of its pool's blocks may have been allocated before the
// pool was moved. Of others the smaller ones come first: a large one that was edited by hand would take the CIDRs of many.
type rank uint8

const (
	regular rank = iota // part of its pool, and at most a block
	sized               // as large as a block of its pool
	irregular
)

func (a *allocator) rankOf(c poolCIDR) rank {
	p := a.pools[c.pool]
	switch family := alloc.FamilyOf(c.cidr.Addr()); {
	case p == nil:
		return irregular
	case p.couldAllocate(c.cidr):
		return regular
	case p.blocks[family] != nil && p.blocks[family].Bits() == c.cidr.Bits():
		return sized
	}
	return irregular
}

// adoptByRank adopts what nodes list, in this order of nodes where the rank is the same.
func (a *allocator) adoptByRank(nodes []*node) {
	type listed struct {
		node  *node
		entry *entry
		rank  rank
	}
	var all []listed
	for _, n := range nodes {
		for i := range n.listed {
			if e := &n.listed[i]; e.valid {
				all = append(all, listed{n, e, a.rankOf(e.poolCIDR)})
			}
		}
	}
	slices.SortStableFunc(all, func(x, y listed) int {
		if c := cmp.Compare(x.rank, y.rank); c != 0 || x.rank != irregular {
			return c
		}
		return y.entry.cidr.Bits() - x.entry.cidr.Bits()
	})
	for _, l := range all {
		a.adoptEntry(l.node, l.entry)
	}
}

func (a *allocator) adoptEntry(n *node, e *entry) {
	e.fate, e.problem = kept, ""
	if !e.valid {
		e.problem = textUnparsable(e.pool, e.text)
		return
	}
	if n.held[e.cidr].poolCIDR == e.poolCIDR {
		n.held[e.cidr], e.fate = hold{e.poolCIDR, true}, adopted
		return
	}
	if a.isImplausible(e.cidr) {
		e.problem = textOutside(e.poolCIDR)
		return
	}
	own, other := a.holdersOf(n, e.cidr)
	if other {
		e.fate, e.problem = lost, textTaken(e.poolCIDR)
		return
	}
	if len(own) > 0 && n.held[own[0]].covers(e.poolCIDR) {
		e.problem = textOverlap(e.poolCIDR, own[0])
		return
	}
	for _, part := range own {
		a.blocks.Release(part, n.Name)
		delete(n.held, part)
		a.touchShowers(part)
	}
	if a.hold(n, hold{e.poolCIDR, true}) {
		e.fate = adopted
	}
}

// hold has a node hold a CIDR of which no node holds a part.
func (a *allocator) hold(n *node, h hold) bool {
	if a.blocks.Reserve(h.cidr, n.Name) != nil {
		return false
	}
	n.held[h.cidr] = h
	a.touchShowers(h.cidr)
	return true
}

// covers reports whether a node that has both holds this CIDR alone: of two that overlap it holds the larger one, of two
// that are equal that of the first pool by name.
func (c poolCIDR) covers(o poolCIDR) bool {
	return cidr.Contains(c.cidr, o.cidr) && (c.cidr.Bits() < o.cidr.Bits() || c.pool < o.pool)
}

// holdersOf are the CIDRs of the node itself that overlap another, and whether one of other nodes does.
func (a *allocator) holdersOf(n *node, c netip.Prefix) (own []netip.Prefix, other bool) {
	for held, name := range a.blocks.Overlapping(c) {
		if name != n.Name {
			return nil, true
		}
		own = append(own, held)
	}
	return own, false
}

// adoptLost offers a node again what it had listed while another node held it, and what no other node holds by now: its
// pods may still use that. The status of the node is the record of it.
func (a *allocator) adoptLost(n *node) {
	n.lost = nil
	for _, c := range lostIn(n.Error) {
		if n.lists[c] || slices.Contains(n.lost, c) {
			continue
		}
		own, other := a.holdersOf(n, c.cidr)
		switch {
		case other || a.mayBeUsed(n, c.cidr):
			n.lost = append(n.lost, c)
		case len(own) == 0 && a.isRegular(c) && !n.Deleting && n.Undecoded == "":
			a.hold(n, hold{c, false})
		}
	}
}

// conflicts are the CIDRs that the node lists, or listed, and another node holds.
func (n *node) conflicts() []poolCIDR {
	list := slices.Clone(n.lost)
	for _, e := range n.listed {
		if e.fate == lost {
			list = append(list, e.poolCIDR)
		}
	}
	return list
}

// isRegular reports whether a pool could have allocated a CIDR.
func (a *allocator) isRegular(c poolCIDR) bool {
	p := a.pools[c.pool]
	return p != nil && p.couldAllocate(c.cidr)
}

// isImplausible reports whether a CIDR is too large to be believed: a node with 0.0.0.0/0 must not block a pool.
func (a *allocator) isImplausible(c netip.Prefix) bool {
	return cidr.IsVast(c) && a.swallowsPool(c)
}

// swallowsPool reports whether a CIDR is larger than a block of a pool and contains a whole CIDR of it.
func (a *allocator) swallowsPool(c netip.Prefix) bool {
	family := alloc.FamilyOf(c.Addr())
	for _, p := range a.pools {
		if b := p.blocks[family]; b != nil && c.Bits() < b.Bits() && slices.ContainsFunc(b.CIDRs(), func(of netip.Prefix) bool { return cidr.Contains(c, of) }) {
			return true
		}
	}
	return false
}

// dropImplausible releases what is not believed after a pool was changed. It reports whether that is anything.
func (a *allocator) dropImplausible(n *node) (dropped bool) {
	for _, h := range n.held {
		if a.isImplausible(h.cidr) {
			a.release(n, h)
			dropped = true
		}
	}
	return dropped
}
