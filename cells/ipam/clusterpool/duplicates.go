// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterpool

import (
	"net/netip"
	"slices"

	"github.com/skep-operator/skep/resources/domain/cidr"
)

// withoutDuplicates are the podCIDRs of a node without those of a family that older nodes have, so that it is given another
// block of that family; nil if none is to be taken out. Only a node with the other family, and with an agent that expects
// that, is treated so: its pods lose their addresses.
func (a *allocator) withoutDuplicates(n *node) []string {
	if n.refusal.kind != alreadyAllocated || a.losesDuplicates == nil || !a.losesDuplicates(n.Name) {
		return nil
	}
	for family := range a.pools {
		own, other := ofFamily(family, n.allocated), ofFamily(1-family, n.allocated)
		listed := ofFamily(family, n.cidrs)
		if len(own) > 0 || len(other) == 0 || len(listed) == 0 || slices.ContainsFunc(listed, func(c netip.Prefix) bool { return !a.isOfOlder(n, c) }) {
			continue
		}
		return slices.DeleteFunc(slices.Clone(n.PodCIDRs), func(text string) bool {
			c, ok := cidr.Parse(text)
			return ok && familyOf(c) == family
		})
	}
	return nil
}

// isOfOlder reports whether nodes hold a part of the blocks of a CIDR, and all of these are older than n.
func (a *allocator) isOfOlder(n *node, c netip.Prefix) (held bool) {
	for _, p := range a.poolsOf(c) {
		for _, owner := range a.blocks.Overlapping(p.BlockOf(c)) {
			if held = true; owner == n.Name || oldestFirst(a.nodes[owner], n) > 0 {
				return false
			}
		}
	}
	return held
}

// refusedDuplicates are the nodes with a CIDR that another one has.
func (a *allocator) refusedDuplicates() []string {
	return slices.DeleteFunc(slices.Clone(a.pending), func(name string) bool { return a.nodes[name].refusal.kind != alreadyAllocated })
}
