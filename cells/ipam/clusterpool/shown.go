// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterpool

import (
	"cmp"
	"iter"
	"maps"
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

const (
	// maxShown is how many blocks' worth of addresses of a cluster CIDR a node is believed for that it shows outside of its podCIDRs: more are none that it
	// was given.
	maxShown = 8
	// maxParts is of how many blocks these may be parts, and beyond maxShown of no more than half of those of the cluster CIDR: no other node is given a block
	// of which a part is shown.
	maxParts = 64
	// wholeBlock is a block's worth of addresses, in the unit in which parts are counted.
	wholeBlock = 1 << 16
)

// mostParts is of how many blocks a node is believed to have shown parts.
func (p *pool) mostParts() int { return max(maxShown, int(min(maxParts, p.size()/2))) }

// shownParts is what a node is believed for.
type shownParts struct {
	seen  map[netip.Prefix]bool
	of    map[*pool]map[netip.Prefix]int // by block, in parts of wholeBlock
	worth map[*pool]int                  // in all blocks
}

// believe leaves out what a node shows beyond that. A CIDR that is not believed in any case (POOL-38) does not count.
func (a *allocator) believe(o observed) observed {
	if a.believesAll {
		return o
	}
	var believed []netip.Prefix
	shown := shownParts{map[netip.Prefix]bool{}, map[*pool]map[netip.Prefix]int{}, map[*pool]int{}}
	for _, c := range o.Elsewhere {
		parts, isWhole := []netip.Prefix{c}, true
		if !cidr.IsVast(c) || a.oversizing(c) == nil {
			parts, isWhole = a.admitShown(c, shown)
		}
		if believed = append(believed, parts...); !isWhole && o.beyond == "" {
			o.beyond = refuseShownBeyond(c, a.poolsOf(c)[0]).text
		}
	}
	o.Elsewhere = believed
	return o
}

// admitShown returns a CIDR that a node shows if it is believed, or else the first blocks of it that are.
func (a *allocator) admitShown(c netip.Prefix, shown shownParts) (parts []netip.Prefix, isWhole bool) {
	isWhole = true
	for _, p := range a.poolsOf(c) {
		for part := range p.partsOf(c) {
			if !shown.admit(p, part) {
				isWhole = false
				break
			}
			parts = append(parts, part)
		}
	}
	if isWhole {
		return []netip.Prefix{c}, true
	}
	return parts, false
}

// partsOf is a CIDR that is a block of the pool, or in one, and else the blocks in it.
func (p *pool) partsOf(c netip.Prefix) iter.Seq[netip.Prefix] {
	if c.Bits() < p.prefix.Bits() {
		c = p.prefix
	}
	return func(yield func(netip.Prefix) bool) {
		for b := netip.PrefixFrom(c.Addr(), max(p.mask, c.Bits())); b.IsValid() && c.Contains(b.Addr()) && yield(b); {
			b = netip.PrefixFrom(netipx.PrefixLastIP(b).Next(), b.Bits())
		}
	}
}

// admit counts a block of a pool, or a part of one, unless that is more than is believed.
func (s shownParts) admit(p *pool, c netip.Prefix) bool {
	if s.seen[c] {
		return true
	}
	if s.of[p] == nil {
		s.of[p] = map[netip.Prefix]int{}
	}
	block := p.BlockOf(c)
	before := s.of[p][block]
	now := min(wholeBlock, before+max(1, wholeBlock>>(c.Bits()-p.mask)))
	if s.worth[p]+now-before > maxShown*wholeBlock || before == 0 && len(s.of[p]) >= p.mostParts() {
		return false
	}
	s.seen[c], s.of[p][block], s.worth[p] = true, now, s.worth[p]+now-before
	return true
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
