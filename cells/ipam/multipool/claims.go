// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package multipool

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/skep-operator/skep/resources/domain/alloc"
	"github.com/skep-operator/skep/resources/domain/cidr"
)

// claims are CIDRs that nodes may use without holding them: what they list and cannot hold, what they show elsewhere, and
// what can be found in lists that cannot be decoded. They are not allocated. A list that cannot be decoded, and in which none is found, may
// have any: nothing is allocated then.
type claims struct {
	byNode    map[string][]netip.Prefix
	blind     map[string]bool   // nodes that may have any CIDR
	undecoded []string          // names of CiliumNodes of which nothing can be decoded
	problems  map[string]string // why lists of nodes cannot be decoded
	changes   uint64
	applied   uint64 // the value of changes at the last apply
}

func newClaims() claims {
	return claims{byNode: map[string][]netip.Prefix{}, blind: map[string]bool{}, problems: map[string]string{}}
}

// updateClaim records what a node may use without holding it.
func (a *allocator) updateClaim(n *node) {
	claim := slices.Concat(n.Found, n.Elsewhere)
	for _, e := range n.listed {
		switch {
		case !e.valid:
			claim = append(claim, cidr.Find(e.text)...)
		case e.fate == kept:
			claim = append(claim, e.cidr)
		case e.fate == lost && !a.swallowsPool(e.cidr):
			claim = append(claim, e.cidr)
		}
	}
	for _, c := range n.lost {
		if !a.swallowsPool(c.cidr) {
			claim = append(claim, c.cidr)
		}
	}
	claim = slices.DeleteFunc(claim, func(c netip.Prefix) bool { return n.holds(c) || a.isImplausible(c) })
	a.claims.set(n.Name, claim, n.Undecoded != "" && n.Blind && !n.known)
	if a.claims.problems[n.Name] = n.Undecoded; n.Undecoded == "" {
		delete(a.claims.problems, n.Name)
	}
}

// mayBeUsed reports whether a node other than n may use a part of a CIDR without holding it. Nodes that lost it, too, do
// not count.
func (a *allocator) mayBeUsed(n *node, c netip.Prefix) bool {
	if _, any := a.claims.blocker(); any {
		return true
	}
	for _, name := range a.shown.Overlapping(c) {
		if name != n.Name {
			return true
		}
	}
	for name, claim := range a.claims.byNode {
		lost := a.nodes[name].conflicts()
		if name != n.Name && slices.ContainsFunc(claim, func(p netip.Prefix) bool {
			return p.Overlaps(c) && !slices.ContainsFunc(lost, func(l poolCIDR) bool { return l.cidr == p })
		}) {
			return true
		}
	}
	return false
}

// holds reports whether a CIDR lies in one that the node holds.
func (n *node) holds(c netip.Prefix) bool {
	for bits := c.Bits(); bits >= 0; bits-- {
		if _, held := n.held[netip.PrefixFrom(c.Addr(), bits).Masked()]; held {
			return true
		}
	}
	return false
}

// remove removes the claim of a node that is gone.
func (c *claims) remove(name string) {
	c.set(name, nil, false)
	delete(c.problems, name)
}

// allProblems are the nodes of which something or all cannot be decoded.
func (c *claims) allProblems() map[string]string {
	all := maps.Clone(c.problems)
	for _, name := range c.undecoded {
		all[name] = "cannot be decoded"
	}
	return all
}

// set replaces the claim of a node.
func (c *claims) set(name string, claim []netip.Prefix, blind bool) {
	if slices.Equal(c.byNode[name], claim) && c.blind[name] == blind {
		return
	}
	c.changes++
	delete(c.byNode, name)
	delete(c.blind, name)
	if len(claim) > 0 {
		c.byNode[name] = claim
	}
	if blind {
		c.blind[name] = true
	}
}

// setUndecoded records the CiliumNodes of which nothing can be decoded.
func (c *claims) setUndecoded(names []string) {
	if !slices.Equal(c.undecoded, names) {
		c.changes++
		c.undecoded = names
	}
}

// blocker is a node that may have any CIDR, ok if there is one. The name "" is an object without a readable name.
func (c *claims) blocker() (name string, ok bool) {
	if len(c.undecoded) > 0 {
		return c.undecoded[0], true
	}
	if len(c.blind) == 0 {
		return "", false
	}
	return slices.Min(slices.Collect(maps.Keys(c.blind))), true
}

// apply has pools allocate nothing that is claimed.
func (c *claims) apply(blocks *alloc.Blocks[string]) {
	if c.applied == c.changes {
		return
	}
	c.applied = c.changes
	_ = blocks.Withhold(slices.Concat(slices.Collect(maps.Values(c.byNode))...)...) // all are masked prefixes
}
