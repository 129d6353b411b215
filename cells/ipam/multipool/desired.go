// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package multipool

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/skep-operator/skep/resources/domain/cidr"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
)

// desired is the desired state of a CiliumNode.
type desired struct {
	// Allocated is to be written if it differs in more than the order; keep leaves what the node has.
	Allocated []ciliumio.PoolAllocation
	keep      bool
	Error     string
	reason    string // of the Event about Error
	holders   string // for that Event: who has what the node lost, "" if no node has
}

func (d desired) equal(o desired) bool {
	return d.Error == o.Error && d.keep == o.keep && listsSame(d.Allocated, o.Allocated)
}

func (a *allocator) desiredOf(n *node) desired {
	d := desired{keep: n.Undecoded != ""}
	if !d.keep {
		d.Allocated = a.allocation(n)
	}
	if d.Error, d.reason = a.errorOf(n); d.Error != "" && a.prefixesErrors {
		d.Error = errorPrefix + d.Error
	}
	d.holders = a.holdersOfLost(n)
	return d
}

// eventText is the error behind who has what the node lost: Events have a bound.
func (d desired) eventText() string {
	if d.holders == "" {
		return d.Error
	}
	return d.holders + ": " + d.Error
}

// holdersOfLost names the nodes that have what a node lost, those of the first few CIDRs.
func (a *allocator) holdersOfLost(n *node) string {
	var lines []string
	for _, c := range n.conflicts() {
		if line := a.textHolder(n, c.cidr); line != "" && len(lines) < maxHolders && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, ", ")
}

// textHolder names another node that has a part of a CIDR, "" if none has.
func (a *allocator) textHolder(n *node, c netip.Prefix) string {
	for held, name := range a.blocks.Overlapping(c) {
		if name != n.Name {
			return textHeld(held, name)
		}
	}
	for _, name := range a.shown.Overlapping(c) {
		if name != n.Name {
			return textHeld(c, name)
		}
	}
	return ""
}

// allocation is what the node holds, and what it lists and is not for us to remove: sorted by pool; in each IPv4, then
// IPv6, then the rest.
func (a *allocator) allocation(n *node) (list []ciliumio.PoolAllocation) {
	texts := map[string][]string{}
	for _, h := range n.held {
		texts[h.pool] = append(texts[h.pool], h.cidr.String())
	}
	for _, e := range n.listed {
		if e.fate == kept {
			texts[e.pool] = append(texts[e.pool], e.text)
		}
	}
	for _, pool := range slices.Sorted(maps.Keys(texts)) {
		a.sort(texts[pool])
		of := a.endsOf(n, pool)
		list = append(list, ciliumio.PoolAllocation{Pool: pool, CIDRs: slices.Compact(texts[pool]), AllowFirstIP: of.first, AllowLastIP: of.last})
	}
	return list
}

// sort orders the CIDRs of a pool as the agents of the cluster do. Each is parsed once.
func (a *allocator) sort(texts []string) {
	type parsed struct {
		rank int
		cidr netip.Prefix
	}
	all := make(map[string]parsed, len(texts))
	for _, text := range texts {
		c, _ := cidr.Parse(text)
		all[text] = parsed{familyRank(text), c}
	}
	slices.SortFunc(texts, func(x, y string) int {
		p, q := all[x], all[y]
		if c := p.rank - q.rank; c != 0 || !a.byAddress || p.rank == 2 {
			return cmp.Or(c, cmp.Compare(x, y))
		}
		return cmp.Or(p.cidr.Addr().Compare(q.cidr.Addr()), p.cidr.Bits()-q.cidr.Bits(), cmp.Compare(x, y))
	})
}

// familyRank orders IPv4 before IPv6, and other texts last.
func familyRank(text string) int {
	c, ok := cidr.Parse(text)
	switch {
	case !ok:
		return 2
	case c.Addr().Is6():
		return 1
	}
	return 0
}

// upToDate reports whether a node has its desired state, or has none.
func (n *node) upToDate() bool {
	return n.Deleting || (n.desired.keep || sameAllocation(n.Allocated, n.desired.Allocated)) && n.errorUpToDate()
}

func (n *node) errorUpToDate() bool { return n.ErrorUndecoded || n.Error == n.desired.Error }

// waits reports whether a node waits for another one that cannot be decoded.
func (n *node) waits() bool {
	return slices.ContainsFunc(n.refusals, func(r refusal) bool { return r.kind == undecidable })
}

// sameAllocation reports whether a list has what is desired, in whatever order. Pools without CIDRs do not matter.
func sameAllocation(has, desired []ciliumio.PoolAllocation) bool {
	has = slices.DeleteFunc(slices.Clone(has), func(p ciliumio.PoolAllocation) bool { return len(p.CIDRs) == 0 })
	slices.SortStableFunc(has, func(p, q ciliumio.PoolAllocation) int { return cmp.Compare(p.Pool, q.Pool) })
	return slices.EqualFunc(has, desired, func(p, q ciliumio.PoolAllocation) bool {
		return sameEnds(p, q) && slices.Equal(slices.Sorted(slices.Values(p.CIDRs)), slices.Sorted(slices.Values(q.CIDRs)))
	})
}

// errorOf is the text of the node's status, and the reason of the Event about it.
func (a *allocator) errorOf(n *node) (text, reason string) {
	var lines []string
	for _, c := range n.lost {
		lines = append(lines, textTaken(c))
	}
	for _, e := range n.listed {
		if e.problem != "" {
			lines = append(lines, e.problem)
		}
	}
	for _, h := range n.held {
		if problem := a.problemOf(h.poolCIDR); problem != "" {
			lines = append(lines, problem)
		}
	}
	lines = append(lines, a.clashes(n)...)
	if why := a.unmigrated[n.Name]; why != "" && len(n.Elsewhere) > 0 {
		lines = append(lines, "migration to multi-pool IPAM failed: "+why)
	}
	if n.IsCut {
		lines = append(lines, textCut)
	}
	slices.Sort(lines) // whatever the order of the list, which a write changes
	for _, line := range []string{n.Undecoded, n.RequestUndecoded} {
		if line != "" {
			lines = append(lines, line)
		}
	}
	if len(lines) > 0 {
		reason = "PodCIDRRefused"
	}
	for _, r := range n.refusals {
		lines = append(lines, r.text)
		reason = cmp.Or(reason, r.reason())
	}
	return joined(lines), reason
}

func sameEnds(p, q ciliumio.PoolAllocation) bool {
	return p.Pool == q.Pool && p.AllowFirstIP == q.AllowFirstIP && p.AllowLastIP == q.AllowLastIP
}

// problemOf is why a CIDR that a node holds is not part of its pool, "" if it is.
func (a *allocator) problemOf(c poolCIDR) string {
	p := a.pools[c.pool]
	switch {
	case p != nil && p.Undecoded != "": // what it has is not known
		return ""
	case (p == nil || !p.exists()) && a.namesOrphans:
		return textOrphan(c)
	case p == nil || !p.exists():
		return textNoPool(c.pool)
	case !p.contains(c.cidr):
		return textOutside(c)
	}
	return ""
}

// draining counts the CIDRs that nodes hold of a pool, by family, and that are not part of it any more.
func (a *allocator) draining() map[poolFamily]int {
	counts := map[poolFamily]int{}
	for _, n := range a.failing {
		for _, h := range n.held {
			if a.problemOf(h.poolCIDR) != "" {
				counts[poolFamily{h.pool, familyOf(h.cidr)}]++
			}
		}
	}
	return counts
}

type poolFamily struct{ pool, family string }

func familyOf(c netip.Prefix) string {
	if c.Addr().Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// joined are lines as the text of a status, without repetitions and not too many.
func joined(lines []string) string {
	var seen []string
	for _, line := range lines {
		if !slices.Contains(seen, line) && len(seen) <= maxLines {
			seen = append(seen, bounded(line))
		}
	}
	if len(seen) > maxLines {
		seen[maxLines] = "and more"
	}
	return strings.Join(seen, "\n")
}
