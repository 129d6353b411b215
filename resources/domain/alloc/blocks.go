// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package alloc

import (
	"fmt"
	"iter"
	"math/big"
	"net/netip"

	"go4.org/netipx"
	"lukechampine.com/uint128"
)

// Blocks are the CIDR blocks that are held, each by one owner, whatever pool they are of, or none. Blocks that are held do
// not overlap; they may be of any size. Blocks are masked. Not safe for concurrent use.
type Blocks[O comparable] struct {
	held     [2]tree[O]        // by family
	withheld [2]tree[struct{}] // by family; disjoint, and independent of what is held
	replaced uint64            // how often withheld was replaced
}

// NewBlocks returns Blocks of which none is held.
func NewBlocks[O comparable]() *Blocks[O] { return &Blocks[O]{} }

// checked is a block masked, with its family and numbers.
func checked(b netip.Prefix) (f Family, s span, order uint8, err error) {
	if !b.IsValid() || b.Addr().Is4In6() {
		return 0, span{}, 0, fmt.Errorf("block %s: %w", b, ErrInvalid)
	}
	s, order = spanOf(b)
	return FamilyOf(b.Addr()), s, order, nil
}

// Reserve records that an owner holds a block, in a pool or not, withheld or not. It does nothing if the owner holds
// exactly this block already. It returns a TakenError[netip.Prefix, O] if it overlaps any other held block, and ErrInvalid
// for a block that is not valid or has an IPv4-mapped address.
func (h *Blocks[O]) Reserve(b netip.Prefix, owner O) error {
	f, s, order, err := checked(b)
	if err != nil {
		return err
	}
	switch held := h.held[f].first(s); {
	case held == nil:
		h.held[f].insert(s.lo, order, owner)
	case held.owner != owner || held.lo != s.lo || held.order != order:
		return h.taken(f, b, owner, held)
	}
	return nil
}

func (h *Blocks[O]) taken(f Family, b netip.Prefix, owner O, held *node[O]) error {
	return &TakenError[netip.Prefix, O]{What: b.Masked(), Owner: owner, Held: f.prefix(held.lo, held.order), By: held.owner}
}

// Release makes a block free. It returns false if the owner does not hold exactly this block.
func (h *Blocks[O]) Release(b netip.Prefix, owner O) bool {
	f, s, order, err := checked(b)
	return err == nil && h.held[f].release(s.lo, order, owner)
}

// OwnerOf returns the owner of exactly this block, false if it is not held.
func (h *Blocks[O]) OwnerOf(b netip.Prefix) (owner O, held bool) {
	f, s, order, err := checked(b)
	if err != nil {
		return owner, false
	}
	return h.held[f].ownerOf(s.lo, order)
}

// Overlapping is the held blocks that overlap a block, with their owners, lowest first. Nothing may be changed during the
// iteration.
func (h *Blocks[O]) Overlapping(b netip.Prefix) iter.Seq2[netip.Prefix, O] {
	return func(yield func(netip.Prefix, O) bool) {
		if f, s, _, err := checked(b); err == nil {
			h.each(f, s, yield)
		}
	}
}

// All is the held blocks with their owners, lowest first, IPv4 before IPv6. Nothing may be changed during the iteration.
func (h *Blocks[O]) All() iter.Seq2[netip.Prefix, O] {
	return func(yield func(netip.Prefix, O) bool) {
		for f := range h.held {
			if !h.each(Family(f), span{hi: uint128.Max}, yield) {
				return
			}
		}
	}
}

func (h *Blocks[O]) each(f Family, s span, yield func(netip.Prefix, O) bool) bool {
	return h.held[f].root.each(s, func(n *node[O]) bool { return yield(f.prefix(n.lo, n.order), n.owner) })
}

// Len is how many blocks are held.
func (h *Blocks[O]) Len() int { return h.held[IPv4].size + h.held[IPv6].size }

// Withhold replaces the blocks that pools do not allocate, nor any part of them, though they are not held: those that
// may be in use without an owner. They may overlap each other and held ones, and can be reserved.
// It returns ErrInvalid as Reserve does; then nothing is changed.
func (h *Blocks[O]) Withhold(blocks ...netip.Prefix) error {
	var union netipx.IPSetBuilder
	for _, b := range blocks {
		if _, _, _, err := checked(b); err != nil {
			return err
		}
		union.AddPrefix(b.Masked())
	}
	set, err := union.IPSet()
	if err != nil {
		return fmt.Errorf("blocks to withhold: %w: %w", ErrInvalid, err)
	}
	h.withheld = [2]tree[struct{}]{}
	h.replaced++
	for _, b := range set.Prefixes() {
		s, order := spanOf(b)
		h.withheld[FamilyOf(b.Addr())].insert(s.lo, order, struct{}{})
	}
	return nil
}

// free is what neither is held nor withheld.
func (h *Blocks[O]) free(f Family) finder {
	if h.withheld[f].root == nil {
		return &h.held[f]
	}
	return both{&h.held[f], &h.withheld[f]}
}

// both finds what is free in two trees.
type both [2]finder

func (b both) lowestFree(s span, order uint8) (lo number, ok bool) {
	for {
		if lo, ok = b[0].lowestFree(s, order); !ok {
			return lo, false
		}
		s.lo = lo
		if s.lo, ok = b[1].lowestFree(s, order); !ok || s.lo == lo {
			return lo, ok
		}
	}
}

func (b both) highestFree(s span, order uint8) (lo number, ok bool) {
	for {
		if lo, ok = b[0].highestFree(s, order); !ok {
			return lo, false
		}
		s.hi = lo.Or(ones(order))
		again, ok := b[1].highestFree(s, order)
		if !ok || again == lo {
			return lo, ok
		}
		s.hi = again.Or(ones(order))
	}
}

// BlockPool is CIDRs of one family that are cut into blocks of one size, to allocate from. What is held is known to its
// Blocks alone: pools take no memory for it, and may overlap without anything being allocated twice.
type BlockPool[O comparable] struct {
	of     *Blocks[O]
	family Family
	order  uint8 // of blocks
	areas  []*area
	counts counts
}

// counts are what was counted last, until something changes.
type counts struct {
	held, used *big.Int // nil if nothing was counted
	changes    uint64   // of the tree
	replaced   uint64
}

// NewPool returns a pool without CIDRs, whose blocks have this many bits. It returns ErrInvalid for more than addresses
// have, and for less than none.
func (h *Blocks[O]) NewPool(f Family, bits int) (*BlockPool[O], error) {
	if bits < 0 || bits > f.bits() {
		return nil, fmt.Errorf("%s blocks of %d bits: %w", f, bits, ErrInvalid)
	}
	return &BlockPool[O]{of: h, family: f, order: uint8(f.bits() - bits)}, nil
}

// Set replaces the CIDRs of the pool, all or none. Those that the pool has keep their place, new ones come after them in
// this order, equal ones are one. A CIDR of the pool that is not listed is dropped: nothing is allocated from it any more,
// and held blocks of it stay held until they are released.
//
// It returns ErrInvalid for a CIDR that is not valid, of the other family or smaller than a block, or an
// OverlapError[netip.Prefix] if two of them overlap; then nothing is changed.
func (p *BlockPool[O]) Set(cidrs ...netip.Prefix) error {
	var list []area
	for _, c := range cidrs {
		f, s, order, err := checked(c)
		switch {
		case err != nil:
			return err
		case f != p.family:
			return fmt.Errorf("CIDR %s: %w: it is not %s", c, ErrInvalid, p.family)
		case order < p.order:
			return fmt.Errorf("CIDR %s: %w: it is smaller than a block of %d bits", c, ErrInvalid, p.Bits())
		}
		list = append(list, area{span: s})
	}
	after, overlap := replace(p.areas, list)
	if overlap != nil {
		return &OverlapError[netip.Prefix]{p.cidr(overlap[0]), p.cidr(overlap[1])}
	}
	p.areas, p.counts = after, counts{}
	return nil
}

// cidr is the prefix of an aligned span.
func (p *BlockPool[O]) cidr(s span) netip.Prefix {
	return p.family.prefix(s.lo, uint8(s.hi.Xor(s.lo).Len()))
}

// Family is the family of the CIDRs.
func (p *BlockPool[O]) Family() Family { return p.family }

// Bits is the prefix length of blocks.
func (p *BlockPool[O]) Bits() int { return p.family.bits() - int(p.order) }

// CIDRs are the CIDRs in the order in which they are allocated from.
func (p *BlockPool[O]) CIDRs() (cidrs []netip.Prefix) {
	for _, a := range p.areas {
		cidrs = append(cidrs, p.cidr(a.span))
	}
	return cidrs
}

// Contains reports whether a block of any size lies in a CIDR of the pool.
func (p *BlockPool[O]) Contains(b netip.Prefix) bool {
	f, s, _, err := checked(b)
	return err == nil && f == p.family && areaOf(p.areas, s) != nil
}

// BlockOf is the block of the pool that contains a smaller one; a larger one is returned as it is, masked.
func (p *BlockPool[O]) BlockOf(b netip.Prefix) netip.Prefix {
	return netip.PrefixFrom(b.Addr(), min(b.Bits(), p.Bits())).Masked()
}

// Overlap is the first CIDR of the pool that overlaps one of another pool, and that one.
func (p *BlockPool[O]) Overlap(q *BlockPool[O]) (own, other netip.Prefix, ok bool) {
	if p.family != q.family {
		return own, other, false
	}
	a, b, ok := firstOverlap(p.areas, q.areas)
	if !ok {
		return own, other, false
	}
	return p.cidr(a), p.cidr(b), true
}

// Allocate allocates this block, of any size. It returns ErrInvalid, ErrOutOfRange, ErrWithheld, or a TakenError, also if
// the owner itself holds it.
func (p *BlockPool[O]) Allocate(b netip.Prefix, owner O) error {
	f, s, _, err := checked(b)
	if err != nil {
		return err
	}
	if !p.Contains(b) {
		return fmt.Errorf("block %s: %w", b, ErrOutOfRange)
	}
	if held := p.of.held[f].first(s); held != nil {
		return p.of.taken(f, b, owner, held)
	}
	if p.of.withheld[f].first(s) != nil {
		return fmt.Errorf("block %s: %w", b, ErrWithheld)
	}
	return p.of.Reserve(b, owner)
}

// AllocateFirst allocates the lowest free block of the first CIDR that has one. It returns ErrFull or ErrNoRange.
func (p *BlockPool[O]) AllocateFirst(owner O) (netip.Prefix, error) {
	return p.hold(chooseFrom(p.areas, lowest(p.of.free(p.family), p.order)), owner)
}

// AllocateNext allocates the first free block after the one that it allocated last in the CIDR, then from the start of the
// CIDR: a block that was released is not allocated again soon. It returns ErrFull or ErrNoRange.
func (p *BlockPool[O]) AllocateNext(owner O) (netip.Prefix, error) {
	return p.hold(chooseFrom(p.areas, next(p.of.free(p.family), p.order)), owner)
}

// AllocateNear allocates the free block with the smallest distance to an address of the same family, the lower one of two.
// It returns ErrFull, ErrNoRange or ErrInvalid.
func (p *BlockPool[O]) AllocateNear(near netip.Addr, owner O) (netip.Prefix, error) {
	if near = near.Unmap(); !near.IsValid() || FamilyOf(near) != p.family {
		return netip.Prefix{}, fmt.Errorf("address %s: %w: it is not %s", near, ErrInvalid, p.family)
	}
	return p.hold(nearest(p.areas, p.of.free(p.family), numberOf(near), p.order), owner)
}

// hold holds a block that was chosen.
func (p *BlockPool[O]) hold(c chosen, owner O) (netip.Prefix, error) {
	if c.err != nil {
		return netip.Prefix{}, c.err
	}
	p.of.held[p.family].insert(c.lo, p.order, owner)
	return p.family.prefix(c.lo, p.order), nil
}

// All is the held blocks that overlap a CIDR of the pool, of any size, with their owners, CIDR by CIDR. Nothing may be
// changed during the iteration.
func (p *BlockPool[O]) All() iter.Seq2[netip.Prefix, O] {
	return func(yield func(netip.Prefix, O) bool) {
		for _, a := range p.areas {
			if !p.of.each(p.family, a.span, yield) {
				return
			}
		}
	}
}

// Total is how many blocks the CIDRs have.
func (p *BlockPool[O]) Total() *big.Int {
	sum := total(p.areas)
	return sum.Rsh(sum, uint(p.order))
}

// Held is how many of them overlap what is held.
func (p *BlockPool[O]) Held() *big.Int { return new(big.Int).Set(p.count().held) }

// Used is how many of them overlap what is held or withheld, and are not allocated therefore.
func (p *BlockPool[O]) Used() *big.Int { return new(big.Int).Set(p.count().used) }

// Free is how many of them can be allocated.
func (p *BlockPool[O]) Free() *big.Int {
	sum := p.Total()
	return sum.Sub(sum, p.count().used)
}

// count counts if something has changed.
func (p *BlockPool[O]) count() counts {
	held := &p.of.held[p.family]
	now := counts{changes: held.changes, replaced: p.of.replaced}
	if p.counts.held != nil && p.counts.changes == now.changes && p.counts.replaced == now.replaced {
		return p.counts
	}
	now.held, now.used = new(big.Int), new(big.Int)
	for _, a := range p.areas {
		now.held.Add(now.held, p.touched(held, a.span))
		p.eachWithheld(a.span, func(s span) {
			now.used.Add(now.used, p.blocksOf(s))
			now.used.Sub(now.used, p.touched(held, s))
		})
	}
	now.used.Add(now.used, now.held)
	p.counts = now
	return now
}

// blocksOf is how many blocks a span is made of.
func (p *BlockPool[O]) blocksOf(s span) *big.Int {
	size := bigSize(s.size())
	return size.Rsh(size, uint(p.order))
}

func (p *BlockPool[O]) touched(t *tree[O], s span) *big.Int {
	if t.first(s) == nil {
		return new(big.Int)
	}
	n := t.touched(s, p.order)
	return bigSize(n)
}

// eachWithheld calls yield for each run of blocks in a CIDR that are withheld, each block once.
func (p *BlockPool[O]) eachWithheld(s span, yield func(span)) {
	var last *number // of the blocks before
	p.of.withheld[p.family].root.each(s, func(n *node[struct{}]) bool {
		part := n.span().clip(s)
		part = span{block(part.lo, p.order).lo, part.hi.Or(ones(p.order))}
		if last == nil || last.Cmp(part.lo) < 0 {
			yield(part)
		}
		last = &part.hi
		return true
	})
}
