// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package multipool

import (
	"github.com/skep-operator/skep/resources/domain/alloc"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
)

// maxBlocks is how many blocks a node can have, of all pools together. More are not believed: the object would become too large.
const maxBlocks = ciliumio.MaxCIDRs

// refusal is why a node lacks addresses of a pool.
type refusal struct {
	kind   kind
	pool   string
	family alloc.Family
	text   string // of status.ipam.operator-status
}

type kind uint8

const (
	_           kind = iota
	noPool           // it does not exist
	exhausted        // it has no free block
	absurd           // more than maxBlocks are needed, with those that it has
	undecidable      // another node may have any block
)

// serve allocates what a node requests and lacks, and computes its desired state.
func (a *allocator) serve(n *node) {
	a.handling(n)
	n.refusals = nil
	if !n.Deleting && n.Undecoded == "" {
		for _, r := range merged(n.Requested) {
			for family, needed := range []int64{r.Needed.IPv4Addrs, r.Needed.IPv6Addrs} {
				if a.enabled[family] {
					a.serveFamily(n, r.Pool, alloc.Family(family), needed)
				}
			}
		}
	}
	a.setPending(n, len(n.refusals)+len(n.lost) > 0)
	a.describe(n)
}

// describe computes the desired state of a node.
func (a *allocator) describe(n *node) {
	before := n.desired
	if n.desired = a.desiredOf(n); !n.desired.equal(before) {
		a.edits++
	}
	if a.failing[n.Name] = n; n.desired.Error == "" {
		delete(a.failing, n.Name)
	}
}

// merged are the requests, each pool once with the larger of its demands.
func merged(requests []ciliumio.PoolRequest) (list []ciliumio.PoolRequest) {
	index := map[string]int{}
	for _, r := range requests {
		i, known := index[r.Pool]
		if !known {
			index[r.Pool] = len(list)
			list = append(list, r)
			continue
		}
		list[i].Needed.IPv4Addrs = max(list[i].Needed.IPv4Addrs, r.Needed.IPv4Addrs)
		list[i].Needed.IPv6Addrs = max(list[i].Needed.IPv6Addrs, r.Needed.IPv6Addrs)
	}
	return list
}

func (a *allocator) serveFamily(n *node, name string, family alloc.Family, needed int64) {
	of := a.endsOf(n, name)
	missing := needed - n.usable(name, family, needed, of)
	if missing <= 0 {
		return
	}
	refuse := func(k kind, reason string) {
		n.refusals = append(n.refusals, refusal{k, name, family, textRefused(n.Name, name, family, reason)})
		if k == exhausted {
			a.full[poolFamily{name, family.String()}] = true
		}
	}
	p := a.pools[name]
	switch {
	case p == nil || !p.inEffect():
		refuse(noPool, "cannot allocate from non-existing pool: "+name)
		return
	case p.blocks[family] == nil:
		refuse(exhausted, textEmpty)
		return
	}
	size := of.usable([]int{32, 128}[family] - p.blocks[family].Bits())
	if (missing-1)/size >= int64(maxBlocks-len(n.held)) {
		refuse(absurd, textAbsurd(needed, len(n.held)))
		return
	}
	if by, ok := a.claims.blocker(); ok {
		refuse(undecidable, textUndecidable(by))
		return
	}
	a.claims.apply(a.blocks)
	for ; missing > 0; missing -= size {
		block, err := p.blocks[family].AllocateNext(n.Name)
		if err != nil {
			refuse(exhausted, textEmpty)
			return
		}
		n.held[block] = hold{poolCIDR{name, block}, false}
	}
}

// usable is how many addresses of a pool a node has, as far as that matters for what it needs.
func (n *node) usable(pool string, family alloc.Family, needed int64, of ends) (sum int64) {
	for _, h := range n.held {
		if h.pool == pool && alloc.FamilyOf(h.cidr.Addr()) == family && sum < needed {
			sum += min(of.usable(h.cidr.Addr().BitLen()-h.cidr.Bits()), needed-sum)
		}
	}
	return sum
}
