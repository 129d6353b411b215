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

// Addresses are the IP addresses that are held, each by one owner, whatever pool it is of, or none. An IPv4-mapped address
// is the IPv4 one, and zones are left out. Not safe for concurrent use.
type Addresses[O comparable] struct {
	held [2]tree[O] // by family
}

// NewAddresses returns Addresses of which none is held.
func NewAddresses[O comparable]() *Addresses[O] { return &Addresses[O]{} }

func (h *Addresses[O]) tree(a netip.Addr) (*tree[O], number) {
	a = a.Unmap()
	return &h.held[FamilyOf(a)], numberOf(a)
}

// Reserve records that an owner holds an address, in a pool or not. It does nothing if the owner holds it already, and
// returns a TakenError[netip.Addr, O] if another one does, or ErrInvalid for the zero address.
func (h *Addresses[O]) Reserve(a netip.Addr, owner O) error {
	if !a.IsValid() {
		return fmt.Errorf("address: %w", ErrInvalid)
	}
	t, n := h.tree(a)
	if held := t.at(n); held == nil {
		t.insert(n, 0, owner)
	} else if held.owner != owner {
		return &TakenError[netip.Addr, O]{What: a, Owner: owner, Held: a, By: held.owner}
	}
	return nil
}

// Release makes an address free. It returns false if the owner does not hold it.
func (h *Addresses[O]) Release(a netip.Addr, owner O) bool {
	t, n := h.tree(a)
	return a.IsValid() && t.release(n, 0, owner)
}

// OwnerOf returns the owner of an address, false if it is free.
func (h *Addresses[O]) OwnerOf(a netip.Addr) (owner O, held bool) {
	if !a.IsValid() {
		return owner, false
	}
	t, n := h.tree(a)
	return t.ownerOf(n, 0)
}

// All is the held addresses with their owners, lowest first, IPv4 before IPv6. Nothing may be changed during the
// iteration.
func (h *Addresses[O]) All() iter.Seq2[netip.Addr, O] {
	return func(yield func(netip.Addr, O) bool) {
		for f := range h.held {
			if !h.each(Family(f), span{hi: uint128.Max}, yield) {
				return
			}
		}
	}
}

// Within is the held addresses of a range with their owners, lowest first. Nothing may be changed during the iteration.
func (h *Addresses[O]) Within(r netipx.IPRange) iter.Seq2[netip.Addr, O] {
	return func(yield func(netip.Addr, O) bool) {
		if f, s, err := rangeSpan(r); err == nil {
			h.each(f, s, yield)
		}
	}
}

func (h *Addresses[O]) each(f Family, s span, yield func(netip.Addr, O) bool) bool {
	return h.held[f].root.each(s, func(n *node[O]) bool { return yield(f.addr(n.lo), n.owner) })
}

// Len is how many addresses are held.
func (h *Addresses[O]) Len() int { return h.held[IPv4].size + h.held[IPv6].size }

// AddressRange is a range of addresses of one family.
type AddressRange struct {
	netipx.IPRange
	// ReserveEdges says that the first and the last address are not allocated. It does nothing in ranges of one or two.
	ReserveEdges bool
}

// rangeSpan is the numbers of a range.
func rangeSpan(r netipx.IPRange) (f Family, s span, err error) {
	r = netipx.IPRangeFrom(r.From().Unmap(), r.To().Unmap())
	if !r.IsValid() {
		return 0, span{}, fmt.Errorf("range %s: %w: it is reversed, or not of one family", r, ErrInvalid)
	}
	return FamilyOf(r.From()), span{numberOf(r.From()), numberOf(r.To())}, nil
}

func (f Family) rangeOf(s span) netipx.IPRange { return netipx.IPRangeFrom(f.addr(s.lo), f.addr(s.hi)) }

// AddressPool is ranges of addresses to allocate from. What is held is known to its Addresses alone: pools take no memory
// for it, and may overlap without anything being allocated twice.
type AddressPool[O comparable] struct {
	of    *Addresses[O]
	areas [2][]*area // by family
}

// NewPool returns a pool without ranges.
func (h *Addresses[O]) NewPool() *AddressPool[O] { return &AddressPool[O]{of: h} }

// Set replaces the ranges of the pool, all or none. Those that the pool has keep their place, new ones come after them in
// this order, equal ones are one. A range of the pool that is not listed is dropped: nothing is allocated from it any
// more, and held addresses of it stay held until they are released.
//
// It returns ErrInvalid, or an OverlapError[netipx.IPRange] if two of the ranges overlap; then nothing is changed.
func (p *AddressPool[O]) Set(ranges ...AddressRange) error {
	var lists [2][]area
	for _, r := range ranges {
		f, s, err := rangeSpan(r.IPRange)
		if err != nil {
			return err
		}
		lists[f] = append(lists[f], area{span: s, edges: r.ReserveEdges})
	}
	var after [2][]*area
	for i, list := range lists {
		f, overlap := Family(i), (*[2]span)(nil)
		if after[f], overlap = replace(p.areas[f], list); overlap != nil {
			return &OverlapError[netipx.IPRange]{f.rangeOf(overlap[0]), f.rangeOf(overlap[1])}
		}
	}
	p.areas = after
	return nil
}

// Ranges are the ranges in the order in which they are allocated from, IPv4 before IPv6.
func (p *AddressPool[O]) Ranges() (ranges []AddressRange) {
	for f, areas := range p.areas {
		for _, a := range areas {
			ranges = append(ranges, AddressRange{Family(f).rangeOf(a.span), a.edges})
		}
	}
	return ranges
}

// Has reports whether the pool has a range of a family.
func (p *AddressPool[O]) Has(f Family) bool { return len(p.areas[f]) > 0 }

// Contains reports whether an address lies in a range, even as a reserved edge.
func (p *AddressPool[O]) Contains(a netip.Addr) bool {
	if !a.IsValid() {
		return false
	}
	in, _ := p.areaOf(a)
	return in != nil
}

// IsReserved reports whether an address is a reserved edge of a range: Allocate does not allocate it.
func (p *AddressPool[O]) IsReserved(a netip.Addr) bool {
	if !a.IsValid() {
		return false
	}
	in, n := p.areaOf(a)
	return in != nil && in.isEdge(n)
}

func (p *AddressPool[O]) areaOf(a netip.Addr) (*area, number) {
	n := numberOf(a.Unmap())
	return areaOf(p.areas[FamilyOf(a)], span{n, n}), n
}

// Overlap is the first range of the pool that overlaps one of another pool, and that one.
func (p *AddressPool[O]) Overlap(q *AddressPool[O]) (own, other netipx.IPRange, ok bool) {
	for i := range p.areas {
		if a, b, ok := firstOverlap(p.areas[i], q.areas[i]); ok {
			return Family(i).rangeOf(a), Family(i).rangeOf(b), true
		}
	}
	return own, other, false
}

// Allocate allocates this address. It returns ErrInvalid, ErrOutOfRange, ErrWithheld for a reserved edge, or a TakenError,
// also if the owner itself holds it.
func (p *AddressPool[O]) Allocate(a netip.Addr, owner O) error {
	if !p.Contains(a) {
		return fmt.Errorf("address %s: %w", a, ErrOutOfRange)
	}
	if by, held := p.of.OwnerOf(a); held {
		return &TakenError[netip.Addr, O]{What: a, Owner: owner, Held: a, By: by}
	}
	if in, n := p.areaOf(a); in.isEdge(n) {
		return fmt.Errorf("address %s: %w: it is the first or last of %s", a, ErrWithheld, FamilyOf(a).rangeOf(in.span))
	}
	return p.of.Reserve(a, owner)
}

// AllocateFirst allocates the lowest free address of the first range that has one. It returns ErrFull or ErrNoRange.
func (p *AddressPool[O]) AllocateFirst(f Family, owner O) (netip.Addr, error) {
	return p.hold(chooseFrom(p.areas[f], lowest(&p.of.held[f], 0)), f, owner)
}

// AllocateNext allocates the first free address after the one that it allocated last in the range, then from the start of
// the range: an address that was released is not allocated again soon. It returns ErrFull or ErrNoRange.
func (p *AddressPool[O]) AllocateNext(f Family, owner O) (netip.Addr, error) {
	return p.hold(chooseFrom(p.areas[f], next(&p.of.held[f], 0)), f, owner)
}

// AllocateTightest allocates the first address of the shortest run of free ones, the lowest of several, in the first range
// that has one: what was released is filled before the rest is begun. It returns ErrFull or ErrNoRange.
func (p *AddressPool[O]) AllocateTightest(f Family, owner O) (netip.Addr, error) {
	t := &p.of.held[f]
	return p.hold(chooseFrom(p.areas[f], func(a *area) (number, bool) { return t.smallestGap(a.usable()) }), f, owner)
}

// AllocateNear allocates the free address with the smallest distance to one of the same family, the lower one of two. It
// returns ErrFull, ErrNoRange or ErrInvalid.
func (p *AddressPool[O]) AllocateNear(near netip.Addr, owner O) (netip.Addr, error) {
	if !near.IsValid() {
		return netip.Addr{}, fmt.Errorf("address: %w", ErrInvalid)
	}
	t, n := p.of.tree(near)
	f := FamilyOf(near)
	return p.hold(nearest(p.areas[f], t, n, 0), f, owner)
}

// hold holds an address that was chosen.
func (p *AddressPool[O]) hold(c chosen, f Family, owner O) (netip.Addr, error) {
	if c.err != nil {
		return netip.Addr{}, c.err
	}
	p.of.held[f].insert(c.lo, 0, owner)
	return f.addr(c.lo), nil
}

// All is the held addresses in ranges of the pool with their owners, range by range as Ranges lists them. Nothing may be
// changed during the iteration.
func (p *AddressPool[O]) All() iter.Seq2[netip.Addr, O] {
	return func(yield func(netip.Addr, O) bool) {
		for f, areas := range p.areas {
			for _, a := range areas {
				if !p.of.each(Family(f), a.span, yield) {
					return
				}
			}
		}
	}
}

// Total is how many addresses the ranges have, both families together.
func (p *AddressPool[O]) Total() *big.Int {
	sum := total(p.areas[IPv4])
	return sum.Add(sum, total(p.areas[IPv6]))
}

// Used is how many of them are held, or are reserved edges.
func (p *AddressPool[O]) Used() *big.Int {
	sum := used(&p.of.held[IPv4], p.areas[IPv4])
	return sum.Add(sum, used(&p.of.held[IPv6], p.areas[IPv6]))
}

// Free is how many of them can be allocated.
func (p *AddressPool[O]) Free() *big.Int {
	sum := p.Total()
	return sum.Sub(sum, p.Used())
}
