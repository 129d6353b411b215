// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterpool

import (
	"cmp"
	"maps"
	"math/bits"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/skep-operator/skep/resources/domain/cidr"
)

// show records what a node shows outside of its podCIDRs: an agent that still runs in another mode uses it. Nodes that show
// or hold a part of what has changed are touched.
func (a *allocator) show(name string, elsewhere []netip.Prefix) {
	believed := slices.DeleteFunc(slices.Clone(elsewhere), cidr.IsVast) // others are not told that they have a part of 0.0.0.0/0
	for _, c := range a.shown.Set(name, believed...) {
		for _, holder := range a.blocks.Overlapping(c) {
			a.touched[holder] = true
		}
		a.touchShowers(c)
	}
}

// maxShown is how many blocks of a cluster CIDR a node is believed for that it shows outside of its podCIDRs: more are none that it was given.
const maxShown = 8

// believe leaves out what a node shows beyond that. A CIDR that is not believed in any case (POOL-38) does not count.
func (a *allocator) believe(o observed) observed {
	var believed []netip.Prefix
	blocks := map[*pool]map[netip.Prefix]bool{}
	for _, c := range o.Elsewhere {
		switch {
		case cidr.IsVast(c) && a.oversizing(c) != nil, a.admitShown(c, blocks):
			believed = append(believed, c)
		case o.beyond == "":
			o.beyond = refuseShownBeyond(c, a.poolsOf(c)[0]).text
		}
	}
	o.Elsewhere = believed
	return o
}

// admitShown adds a CIDR to the blocks that a node shows, unless they would be too many of a pool.
func (a *allocator) admitShown(c netip.Prefix, blocks map[*pool]map[netip.Prefix]bool) bool {
	pools := a.poolsOf(c)
	for _, p := range pools {
		in := p.blocksIn(c)
		added := 0
		for _, b := range in {
			if !blocks[p][b] {
				added++
			}
		}
		if in == nil || len(blocks[p])+added > maxShown {
			return false
		}
	}
	for _, p := range pools {
		if blocks[p] == nil {
			blocks[p] = map[netip.Prefix]bool{}
		}
		for _, b := range p.blocksIn(c) {
			blocks[p][b] = true
		}
	}
	return true
}

// blocksIn are the blocks of the pool that a CIDR overlaps which is one of it, or contains it; nil if these are more than maxShown.
func (p *pool) blocksIn(c netip.Prefix) (blocks []netip.Prefix) {
	if c.Bits() < p.prefix.Bits() {
		c = p.prefix
	}
	if p.mask-c.Bits() > bits.Len(maxShown)-1 {
		return nil
	}
	for b := netip.PrefixFrom(c.Addr(), max(p.mask, c.Bits())); ; b = netip.PrefixFrom(netipx.PrefixLastIP(b).Next(), b.Bits()) {
		if !b.IsValid() || !c.Contains(b.Addr()) {
			return blocks
		}
		blocks = append(blocks, p.BlockOf(b))
	}
}

// touchShowers touches the nodes that show a part of a CIDR that another one gets or loses.
func (a *allocator) touchShowers(c netip.Prefix) {
	for _, name := range a.shown.Overlapping(c) {
		a.touched[name] = true
	}
}

// popTouched are the nodes whose errors may be others now, as those are about other nodes.
func (a *allocator) popTouched() []string {
	names := slices.Sorted(maps.Keys(a.touched))
	clear(a.touched)
	return names
}

// clashOf is what a node holds or shows and an older node holds or shows, too, the lowest CIDR first. Nothing is taken from
// either: it is not known whose pods use it.
func (a *allocator) clashOf(n *node) refusal {
	if a.shown.Len() == 0 {
		return refusal{}
	}
	var all []clash
	for _, c := range n.allocated {
		all = append(all, a.clashesWithShown(n, c)...)
	}
	for _, c := range a.shown.Of(n.Name) {
		all = append(all, a.clashesWithShown(n, c)...)
		for _, name := range a.blocks.Overlapping(c) {
			if o := a.nodes[name]; oldestFirst(o, n) < 0 {
				all = append(all, clashesOf(c, o)...)
			}
		}
	}
	if len(all) == 0 {
		return refusal{}
	}
	first := slices.MinFunc(all, func(x, y clash) int {
		return cmp.Or(x.own.Compare(y.own), x.other.Compare(y.other), oldestFirst(x.by, y.by))
	})
	return refuseShown(first.own, first.other, first.by.Name)
}

// clash is a CIDR of a node that overlaps one of an older node.
type clash struct {
	own, other netip.Prefix
	by         *node
}

func (a *allocator) clashesWithShown(n *node, c netip.Prefix) (all []clash) {
	for other, name := range a.shown.Overlapping(c) {
		if o := a.nodes[name]; oldestFirst(o, n) < 0 {
			all = append(all, clash{c, other, o})
		}
	}
	return all
}

// clashesOf are clashes with the CIDRs of a node in whose blocks a part of c is.
func clashesOf(c netip.Prefix, o *node) (all []clash) {
	for _, has := range o.allocated {
		if has.Overlaps(c) {
			all = append(all, clash{c, has, o})
		}
	}
	return all
}

// ownBlock is a block of a pool that a node shows outside of its podCIDRs, and no other node holds or claims a part of: the
// node is given that, so that its pods keep their addresses where a cluster comes from another mode. It is not valid if
// there is none.
func (a *allocator) ownBlock(p *pool, n *node) netip.Prefix {
	for _, c := range n.Elsewhere {
		if c.Bits() == p.mask && p.Contains(c) && a.isFreeFor(n, c) {
			return c
		}
	}
	return netip.Prefix{}
}

func (a *allocator) isFreeFor(n *node, c netip.Prefix) bool {
	for range a.blocks.Overlapping(c) {
		return false
	}
	for name, claim := range a.claims.byNode {
		if name != n.Name && slices.ContainsFunc(claim.cidrs, c.Overlaps) {
			return false
		}
	}
	return true
}
