// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package multipool

import "math"

// ends are the addresses at the ends of a CIDR that pods use.
type ends struct{ first, last bool }

// changed is the field of a pool that differs, "" if none does.
func (e ends) changed(now ends) string {
	switch {
	case e.first != now.first:
		return "allowFirstIP"
	case e.last != now.last:
		return "allowLastIP"
	}
	return ""
}

// endsOf are those of the CIDRs that a node has of a pool: as its list says, since its agent goes by that, and keeps them for
// as long as it runs. Those of the pool hold for a node that lists none of it.
func (a *allocator) endsOf(n *node, pool string) (e ends) {
	listed := false
	for _, of := range n.Allocated {
		if of.Pool == pool && len(of.CIDRs) > 0 {
			listed, e = true, ends{e.first || of.AllowFirstIP, e.last || of.AllowLastIP}
		}
	}
	if p := a.pools[pool]; p != nil && !listed {
		return p.ends
	}
	return e
}

// usable is how many addresses of a block with this many host bits agents use: all but the first and the last, unless these
// are allowed, and all where there are no others.
func (e ends) usable(hostBits int) int64 {
	switch {
	case hostBits <= 1:
		return 1 << hostBits
	case hostBits >= 63:
		return math.MaxInt64
	}
	n := int64(1)<<hostBits - 2
	if e.first {
		n++
	}
	if e.last {
		n++
	}
	return n
}
