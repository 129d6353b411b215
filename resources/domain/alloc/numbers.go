// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package alloc

import (
	"fmt"
	"iter"
	"math/big"
	"strconv"

	"lukechampine.com/uint128"
)

// Unsigned is the types of numbers.
type Unsigned interface {
	~uint8 | ~uint16 | ~uint32 | ~uint64
}

// Numbers are the numbers that are held, each by one owner, whatever pool it is of, or none. Not safe for concurrent use.
type Numbers[N Unsigned, O comparable] struct {
	held tree[O]
}

// NewNumbers returns Numbers of which none is held.
func NewNumbers[N Unsigned, O comparable]() *Numbers[N, O] { return &Numbers[N, O]{} }

// Number is a number in errors.
type Number uint64

// String is the number in decimal.
func (n Number) String() string { return strconv.FormatUint(uint64(n), 10) }

// Reserve records that an owner holds a number, in a pool or not. It does nothing if the owner holds it already, and
// returns a TakenError[Number, O] if another one does.
func (h *Numbers[N, O]) Reserve(n N, owner O) error {
	if held := h.held.at(numberFrom(n)); held == nil {
		h.held.insert(numberFrom(n), 0, owner)
	} else if held.owner != owner {
		return &TakenError[Number, O]{What: Number(n), Owner: owner, Held: Number(n), By: held.owner}
	}
	return nil
}

// Release makes a number free. It returns false if the owner does not hold it.
func (h *Numbers[N, O]) Release(n N, owner O) bool { return h.held.release(numberFrom(n), 0, owner) }

// OwnerOf returns the owner of a number, false if it is free.
func (h *Numbers[N, O]) OwnerOf(n N) (owner O, held bool) { return h.held.ownerOf(numberFrom(n), 0) }

// All is the held numbers with their owners, lowest first. Nothing may be changed during the iteration.
func (h *Numbers[N, O]) All() iter.Seq2[N, O] {
	return func(yield func(N, O) bool) {
		h.held.root.each(span{hi: uint128.Max}, func(n *node[O]) bool { return yield(N(n.lo.Lo), n.owner) })
	}
}

// Len is how many numbers are held.
func (h *Numbers[N, O]) Len() int { return h.held.size }

// NumberRange is the numbers from First to Last.
type NumberRange[N Unsigned] struct{ First, Last N }

// String is the range as "1-9".
func (r NumberRange[N]) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

func (r NumberRange[N]) span() span { return span{numberFrom(r.First), numberFrom(r.Last)} }

func numberFrom[N Unsigned](n N) number { return uint128.From64(uint64(n)) }

// NumberPool is ranges of numbers to allocate from. What is held is known to its Numbers alone: pools take no memory for
// it, and may overlap without anything being allocated twice.
type NumberPool[N Unsigned, O comparable] struct {
	of    *Numbers[N, O]
	areas []*area
}

// NewPool returns a pool without ranges.
func (h *Numbers[N, O]) NewPool() *NumberPool[N, O] { return &NumberPool[N, O]{of: h} }

// Set replaces the ranges of the pool, all or none: see AddressPool.Set.
func (p *NumberPool[N, O]) Set(ranges ...NumberRange[N]) error {
	var list []area
	for _, r := range ranges {
		if r.First > r.Last {
			return fmt.Errorf("range %s: %w: it is reversed", r, ErrInvalid)
		}
		list = append(list, area{span: r.span()})
	}
	after, overlap := replace(p.areas, list)
	if overlap != nil {
		return &OverlapError[NumberRange[N]]{rangeFrom[N](overlap[0]), rangeFrom[N](overlap[1])}
	}
	p.areas = after
	return nil
}

func rangeFrom[N Unsigned](s span) NumberRange[N] { return NumberRange[N]{N(s.lo.Lo), N(s.hi.Lo)} }

// Ranges are the ranges in the order in which they are allocated from.
func (p *NumberPool[N, O]) Ranges() (ranges []NumberRange[N]) {
	for _, a := range p.areas {
		ranges = append(ranges, rangeFrom[N](a.span))
	}
	return ranges
}

// Contains reports whether a number lies in a range.
func (p *NumberPool[N, O]) Contains(n N) bool {
	return areaOf(p.areas, NumberRange[N]{n, n}.span()) != nil
}

// Allocate allocates this number. It returns ErrOutOfRange, or a TakenError, also if the owner itself holds it.
func (p *NumberPool[N, O]) Allocate(n N, owner O) error {
	if !p.Contains(n) {
		return fmt.Errorf("number %d: %w", n, ErrOutOfRange)
	}
	if by, held := p.of.OwnerOf(n); held {
		return &TakenError[Number, O]{What: Number(n), Owner: owner, Held: Number(n), By: by}
	}
	return p.of.Reserve(n, owner)
}

// AllocateFirst allocates the lowest free number of the first range that has one. It returns ErrFull or ErrNoRange.
func (p *NumberPool[N, O]) AllocateFirst(owner O) (N, error) {
	return p.hold(chooseFrom(p.areas, lowest(&p.of.held, 0)), owner)
}

// AllocateNext allocates the first free number after the one that it allocated last in the range, then from the start of
// the range: a number that was released is not allocated again soon. It returns ErrFull or ErrNoRange.
func (p *NumberPool[N, O]) AllocateNext(owner O) (N, error) {
	return p.hold(chooseFrom(p.areas, next(&p.of.held, 0)), owner)
}

// AllocateNear allocates the free number with the smallest distance. It returns ErrFull or ErrNoRange.
func (p *NumberPool[N, O]) AllocateNear(near N, owner O) (N, error) {
	return p.hold(nearest(p.areas, &p.of.held, numberFrom(near), 0), owner)
}

// Pick returns a free number without allocating it: choose returns the index, from 0, among so many free ones, lowest
// first within each range. It returns ErrFull or ErrNoRange.
func (p *NumberPool[N, O]) Pick(choose func(of uint64) uint64) (N, error) {
	free := p.free()
	switch {
	case len(p.areas) == 0:
		return 0, ErrNoRange
	case free.IsZero():
		return 0, ErrFull
	case free.Hi > 0: // 2^64
		free = uint128.Max.Rsh(64)
	}
	index := choose(free.Lo)
	below := uint128.From64(index)
	for _, a := range p.areas {
		if n, ok := p.of.held.nthFree(a.span, below); ok {
			return N(n.Lo), nil
		}
		below = below.Sub(p.freeIn(a))
	}
	return 0, fmt.Errorf("index %d of %s free numbers: %w", index, free, ErrInvalid)
}

func (p *NumberPool[N, O]) free() (sum number) {
	for _, a := range p.areas {
		sum = sum.Add(p.freeIn(a))
	}
	return sum
}

func (p *NumberPool[N, O]) freeIn(a *area) number { return a.size().Sub(p.of.held.held(a.span)) }

// hold holds a number that was chosen.
func (p *NumberPool[N, O]) hold(c chosen, owner O) (N, error) {
	if c.err != nil {
		return 0, c.err
	}
	p.of.held.insert(c.lo, 0, owner)
	return N(c.lo.Lo), nil
}

// Total is how many numbers the ranges have.
func (p *NumberPool[N, O]) Total() *big.Int { return total(p.areas) }

// Used is how many of them are held.
func (p *NumberPool[N, O]) Used() *big.Int { return used(&p.of.held, p.areas) }

// Free is how many of them can be allocated.
func (p *NumberPool[N, O]) Free() *big.Int { return p.free().Big() }
