// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterpool

import (
	"net/netip"
	"slices"

	"github.com/skep-operator/skep/resources/domain/cidr"
)

// claims are CIDRs that nodes list, or show elsewhere, and that are not allocated to them: agents may use them, as they do not read errors.
// Claimed blocks are not allocated to other nodes, but another node that lists them may adopt them. A CIDR that cannot be
// decoded may be any: nothing is allocated that it could be.
type claims struct {
	byNode    map[string]claim
	undecoded []string // names of CiliumNodes of which nothing can be decoded
	changes   uint64
	applied   uint64     // the value of changes at the last apply
	blockers  [2]blocker // by family
}

// claim is the claim of one node.
type claim struct {
	cidrs      []netip.Prefix
	elsewhere  int     // how many of cidrs the node shows outside of its podCIDRs
	mayHaveAny [2]bool // families of which the node may have any CIDR
	problem    string  // of the node, for health and the log
}

// blocker is a node that may have any CIDR of a family, so that none can be allocated. The name "" is an object without a
// readable name.
type blocker struct {
	exists bool
	node   string
}

func newClaims() claims { return claims{byNode: map[string]claim{}} }

// update records the claim of a node.
func (c *claims) update(a *allocator, n *node) {
	now, before := a.claimOf(n), c.byNode[n.Name]
	switch {
	case slices.Equal(now.cidrs, before.cidrs) && now.elsewhere == before.elsewhere && now.mayHaveAny == before.mayHaveAny && now.problem == before.problem:
		return
	case len(now.cidrs) == 0 && now.problem == "":
		delete(c.byNode, n.Name)
	default:
		c.byNode[n.Name] = now
	}
	c.changes++
}

func (c *claims) remove(name string) {
	if _, claimed := c.byNode[name]; claimed {
		c.changes++
		delete(c.byNode, name)
	}
}

// setUndecoded records the CiliumNodes of which nothing can be decoded.
func (c *claims) setUndecoded(names []string) {
	if !slices.Equal(c.undecoded, names) {
		c.changes++
		c.undecoded = names
	}
}

func (a *allocator) claimOf(n *node) (now claim) {
	before := map[*pool]listedBlocks{}
	for i, c := range slices.Concat(n.cidrs, n.Found, n.inInvalid, n.Elsewhere) {
		elsewhere := i >= len(n.cidrs)+len(n.Found)+len(n.inInvalid)
		inTexts := i < len(n.cidrs) || i >= len(n.cidrs)+len(n.Found) && !elsewhere // of PodCIDRs, also of what is no CIDR
		switch p := a.oversizing(c); {
		case withinOne(c, n.allocated), len(a.poolsOf(c)) == 0:
		case p != nil && (!elsewhere || cidr.IsVast(c)):
			now.problem = refuseOversized(c, p).text
		case inTexts && a.isSurplus(c, before):
			now.problem = refuseSurplus(c, a.poolsOf(c)[0]).text
		default:
			now.cidrs = append(now.cidrs, c)
			if elsewhere {
				now.elsewhere++
			}
		}
		for _, p := range a.poolsOf(c) {
			if !p.oversized(c) {
				before[p] = before[p].with(p.BlockOf(c))
			}
		}
	}
	if n.beyond != "" {
		now.problem = n.beyond
	}
	if n.Undecoded != "" {
		now.problem = n.Undecoded
	}
	if n.Undecoded != "" && !n.SetAside {
		for _, family := range a.missing(slices.Concat(n.allocated, n.Found)) {
			now.mayHaveAny[family] = true
		}
	}
	return now
}

// listedBlocks are the blocks of a pool in which the CIDRs are that a node lists: the smallest of them while all overlap, and else the least CIDR that
// has those which are apart.
type listedBlocks struct {
	least netip.Prefix
	apart bool
}

// with adds a block.
func (l listedBlocks) with(block netip.Prefix) listedBlocks {
	switch {
	case !l.least.IsValid():
		return listedBlocks{least: block}
	case !l.least.Overlaps(block):
		for bits := min(l.least.Bits(), block.Bits()); ; bits-- {
			if both := netip.PrefixFrom(block.Addr(), bits).Masked(); both.Overlaps(l.least) {
				return listedBlocks{both, true}
			}
		}
	case !l.apart && block.Bits() > l.least.Bits():
		return listedBlocks{least: block}
	}
	return l
}

// hasApart reports whether one of the blocks does not overlap another block.
func (l listedBlocks) hasApart(block netip.Prefix) bool {
	if l.apart {
		return !cidr.Contains(block, l.least)
	}
	return l.least.IsValid() && !l.least.Overlaps(block)
}

// isSurplus reports whether a node lists a CIDR of another block of the same pool before this one. It can have been given
// one of them, and its agent uses the first: what it lists more of does not keep others from it.
func (a *allocator) isSurplus(c netip.Prefix, before map[*pool]listedBlocks) bool {
	p := a.poolsOf(c)[0] // it is not oversized
	return !a.believesAll && before[p].hasApart(p.BlockOf(c))
}

// oversizing is a pool that a CIDR contains, nil if there is none.
func (a *allocator) oversizing(c netip.Prefix) *pool {
	for _, p := range a.poolsOf(c) {
		if p.oversized(c) {
			return p
		}
	}
	return nil
}

// apply withholds what is claimed from allocation, and sets the blockers.
func (c *claims) apply(a *allocator) {
	if c.applied == c.changes {
		return
	}
	c.applied = c.changes
	var claimed []netip.Prefix
	for _, claim := range c.byNode {
		claimed = append(claimed, claim.cidrs...)
	}
	_ = a.blocks.Withhold(claimed...) // they overlap pools, so they are valid
	for family := range c.blockers {
		h := blocker{exists: len(c.undecoded) > 0}
		if h.exists {
			h.node = c.undecoded[0]
		}
		for name, claim := range c.byNode {
			if claim.mayHaveAny[family] && (!h.exists || name < h.node && len(c.undecoded) == 0) {
				h = blocker{true, name}
			}
		}
		c.blockers[family] = h
	}
}
