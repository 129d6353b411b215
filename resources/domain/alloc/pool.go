// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package alloc

import (
	"math/big"

	"lukechampine.com/uint128"
)

// area is a range of a pool.
type area struct {
	span
	edges  bool // the first and the last number are not allocated
	cursor number
}

func newArea(s span, edges bool) *area { return &area{s, edges, s.lo} }

// usable is the numbers that are allocated. Edges are kept only by areas that have others.
func (a *area) usable() span {
	if a.keepsEdges() {
		return span{a.lo.Add64(1), a.hi.Sub64(1)}
	}
	return a.span
}

func (a *area) keepsEdges() bool { return a.edges && a.hi.Sub(a.lo).Cmp64(2) >= 0 }

// isEdge reports whether a number is an edge that is not allocated.
func (a *area) isEdge(n number) bool { return a.keepsEdges() && (n == a.lo || n == a.hi) }

// choice is the lowest number of a free block in an area, if there is one.
type choice func(*area) (lo number, ok bool)

// chosen is the lowest number of a free block, or why there is none.
type chosen struct {
	lo  number
	err error
}

// chooseFrom is the choice of the first area that has one.
func chooseFrom(areas []*area, choose choice) chosen {
	if len(areas) == 0 {
		return chosen{err: ErrNoRange}
	}
	for _, a := range areas {
		if lo, ok := choose(a); ok {
			return chosen{lo: lo}
		}
	}
	return chosen{err: ErrFull}
}

// finder is a tree of holds, without its owners.
type finder interface {
	lowestFree(s span, order uint8) (number, bool)
	highestFree(s span, order uint8) (number, bool)
}

// lowest chooses the lowest free block.
func lowest(f finder, order uint8) choice {
	return func(a *area) (number, bool) { return f.lowestFree(a.usable(), order) }
}

// next chooses the first free block at or after the cursor, wrapping around, and moves the cursor behind it.
func next(f finder, order uint8) choice {
	return func(a *area) (number, bool) {
		s := a.usable()
		s.lo = larger(s.lo, a.cursor)
		lo, ok := number{}, false
		if s.lo.Cmp(s.hi) <= 0 {
			lo, ok = f.lowestFree(s, order)
		}
		if !ok {
			lo, ok = f.lowestFree(a.usable(), order)
		}
		if ok {
			a.cursor = a.lo
			if last := lo.Or(ones(order)); last.Cmp(a.hi) < 0 {
				a.cursor = last.Add64(1)
			}
		}
		return lo, ok
	}
}

// nearest is the free block of the areas with the smallest distance, the lower one of two.
func nearest(areas []*area, f finder, near number, order uint8) chosen {
	if len(areas) == 0 {
		return chosen{err: ErrNoRange}
	}
	best := chosen{err: ErrFull}
	near = block(near, order).lo
	offer := func(lo number, ok bool) {
		if ok && (best.err != nil || nearer(lo, best.lo, near)) {
			best = chosen{lo: lo}
		}
	}
	for _, a := range areas {
		s := a.usable()
		if near.Cmp(s.hi) <= 0 {
			offer(f.lowestFree(span{larger(s.lo, near), s.hi}, order))
		}
		if near.Cmp(s.lo) >= 0 {
			offer(f.highestFree(span{s.lo, smaller(s.hi, near.Or(ones(order)))}, order))
		}
	}
	return best
}

// nearer reports whether a is nearer than b, or as near and lower.
func nearer(a, b, to number) bool {
	c := distance(a, to).Cmp(distance(b, to))
	return c < 0 || c == 0 && a.Cmp(b) < 0
}

func distance(a, b number) number { return larger(a, b).Sub(smaller(a, b)) }

// total is how many numbers the areas have.
func total(areas []*area) *big.Int {
	sum := new(big.Int)
	for _, a := range areas {
		sum.Add(sum, bigSize(a.size()))
	}
	return sum
}

// bigSize is a size that is not 0: 0 is 2^128 that wrapped.
func bigSize(n number) *big.Int {
	if n.IsZero() {
		return new(big.Int).Lsh(big.NewInt(1), 128)
	}
	return n.Big()
}

// used is how many numbers of the areas are held, or are edges.
func used[O comparable](t *tree[O], areas []*area) *big.Int {
	sum := new(big.Int)
	for _, a := range areas {
		if t.first(a.span) != nil {
			sum.Add(sum, bigSize(t.held(a.span)))
		}
		for _, n := range []number{a.lo, a.hi} {
			if a.isEdge(n) && t.first(span{n, n}) == nil {
				sum.Add(sum, uint128.From64(1).Big())
			}
		}
	}
	return sum
}

// replace is the areas of a pool after its ranges were replaced: those that stay in their order, then new ones. A range
// that has an equal one before it is left out. The first two that overlap are returned, if there are any.
func replace(before []*area, ranges []area) (after []*area, overlap *[2]span) {
	added := map[span]*area{}
	for _, r := range ranges {
		if added[r.span] == nil {
			added[r.span] = newArea(r.span, r.edges)
		}
	}
	for _, a := range before {
		if now := added[a.span]; now != nil {
			now.cursor = a.cursor
			after = append(after, now)
			delete(added, a.span)
		}
	}
	for _, r := range ranges {
		if a := added[r.span]; a != nil {
			after = append(after, a)
			delete(added, r.span)
		}
	}
	for i, a := range after {
		for _, b := range after[:i] {
			if a.overlaps(b.span) {
				return nil, &[2]span{a.span, b.span}
			}
		}
	}
	return after, nil
}

// firstOverlap is the first two areas of two pools that overlap.
func firstOverlap(p, q []*area) (a, b span, ok bool) {
	for _, a := range p {
		for _, b := range q {
			if a.overlaps(b.span) {
				return a.span, b.span, true
			}
		}
	}
	return span{}, span{}, false
}

// areaOf is the area that contains a span, nil if none does.
func areaOf(areas []*area, s span) *area {
	for _, a := range areas {
		if a.contains(s) {
			return a
		}
	}
	return nil
}
