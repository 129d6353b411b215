// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package multipool

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/skep-operator/skep/resources/domain/cidr"
)

// show records what a node shows outside of its pools: an agent that still runs in another mode uses it. Nodes that show or
// hold a part of what has changed are touched.
func (a *allocator) show(name string, elsewhere []netip.Prefix) {
	believed := slices.DeleteFunc(slices.Clone(elsewhere), cidr.IsVast) // others are not told that they have a part of 0.0.0.0/0
	for _, c := range a.shown.Set(name, believed...) {
		a.edits++
		for _, holder := range a.blocks.Overlapping(c) {
			a.touched[holder] = true
		}
		a.touchShowers(c)
	}
}

// touchShowers touches the nodes that show a part of a CIDR that another one gets or loses.
func (a *allocator) touchShowers(c netip.Prefix) {
	for _, name := range a.shown.Overlapping(c) {
		a.touched[name] = true
	}
}

// describeTouched computes the desired state of touched nodes again: their errors may be about others. It returns those
// whose state has changed.
func (a *allocator) describeTouched() (changed []string) {
	for name := range a.touched {
		n := a.nodes[name]
		if n == nil {
			continue
		}
		before := n.desired
		if a.describe(n); !n.desired.equal(before) {
			changed = append(changed, name)
		}
	}
	clear(a.touched)
	return changed
}

// clashes are lines about what a node holds or shows, and an older node holds or shows, too. Nothing is taken from either:
// it is not known whose pods use it.
func (a *allocator) clashes(n *node) (lines []string) {
	if a.shown.Len() == 0 {
		return nil
	}
	for _, h := range n.held {
		for c, o := range a.olderShowers(n, h.cidr) {
			lines = append(lines, textShownElsewhere(h.poolCIDR, c, o.Name))
		}
	}
	for _, own := range a.shown.Of(n.Name) {
		older := a.olderShowers(n, own)
		for c, name := range a.blocks.Overlapping(own) {
			if o := a.nodes[name]; oldestFirst(o, n) < 0 {
				older[c] = o
			}
		}
		for c, o := range older {
			lines = append(lines, textShownTwice(own, c, o.Name))
		}
	}
	return lines
}

// olderShowers are the CIDRs that overlap another one, each with the oldest node that shows it, as far as that is older than n.
func (a *allocator) olderShowers(n *node, c netip.Prefix) map[netip.Prefix]*node {
	found := map[netip.Prefix]*node{}
	for seen, name := range a.shown.Overlapping(c) {
		o := a.nodes[name]
		if oldestFirst(o, n) < 0 && (found[seen] == nil || oldestFirst(o, found[seen]) < 0) {
			found[seen] = o
		}
	}
	return found
}

// showing are the nodes that show CIDRs outside of their pools, sorted.
func (a *allocator) showing() []string {
	names := slices.Sorted(maps.Keys(a.nodes))
	return slices.DeleteFunc(names, func(name string) bool { return len(a.nodes[name].Elsewhere) == 0 })
}
