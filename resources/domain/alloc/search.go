// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package alloc

import "lukechampine.com/uint128"

// lowestFree is the lowest aligned free block of an order that lies in a span.
func (t *tree[O]) lowestFree(s span, order uint8) (lo number, ok bool) {
	return t.root.lowestFree(s, order)
}

// lowestFree searches in a span, which contains the node or is clipped by it. n may be nil: the span is free.
func (n *node[O]) lowestFree(s span, order uint8) (number, bool) {
	if n == nil || !n.span().overlaps(s) {
		return lowestBlock(s, order)
	}
	own := n.span()
	if s.lo.Cmp(own.lo) < 0 {
		if lo, ok := lowestBlock(span{s.lo, own.lo.Sub64(1)}, order); ok {
			return lo, true
		}
	}
	if n.free() >= int16(order) {
		for h, half := range n.inner.half {
			if part := n.halfSpan(h); part.overlaps(s) {
				if lo, ok := half.lowestFree(part.clip(s), order); ok {
					return lo, true
				}
			}
		}
	}
	if own.hi.Cmp(s.hi) < 0 {
		return lowestBlock(span{own.hi.Add64(1), s.hi}, order)
	}
	return number{}, false
}

// halfSpan is the numbers of a half of the node, held or not.
func (n *node[O]) halfSpan(h int) span {
	s := block(n.lo, n.order-1)
	if h == 1 {
		s.lo, s.hi = s.hi.Add64(1), n.span().hi
	}
	return s
}

// lowestBlock is the lowest aligned block of an order in a span.
func lowestBlock(s span, order uint8) (number, bool) {
	b := block(s.lo, order)
	if b.lo != s.lo {
		if b.hi.Cmp(s.hi) >= 0 {
			return number{}, false
		}
		b = block(b.hi.Add64(1), order)
	}
	return b.lo, b.hi.Cmp(s.hi) <= 0
}

// highestFree is the highest aligned free block of an order that lies in a span.
func (t *tree[O]) highestFree(s span, order uint8) (lo number, ok bool) {
	return t.root.highestFree(s, order)
}

func (n *node[O]) highestFree(s span, order uint8) (number, bool) {
	if n == nil || !n.span().overlaps(s) {
		return highestBlock(s, order)
	}
	own := n.span()
	if own.hi.Cmp(s.hi) < 0 {
		if lo, ok := highestBlock(span{own.hi.Add64(1), s.hi}, order); ok {
			return lo, true
		}
	}
	if n.free() >= int16(order) {
		for h := 1; h >= 0; h-- {
			if part := n.halfSpan(h); part.overlaps(s) {
				if lo, ok := n.inner.half[h].highestFree(part.clip(s), order); ok {
					return lo, true
				}
			}
		}
	}
	if s.lo.Cmp(own.lo) < 0 {
		return highestBlock(span{s.lo, own.lo.Sub64(1)}, order)
	}
	return number{}, false
}

// highestBlock is the highest aligned block of an order in a span.
func highestBlock(s span, order uint8) (number, bool) {
	b := block(s.hi, order)
	if b.hi != s.hi {
		if b.lo.Cmp(s.lo) <= 0 {
			return number{}, false
		}
		b = block(b.lo.Sub64(1), order)
	}
	return b.lo, b.lo.Cmp(s.lo) >= 0
}

// gaps walks the runs of free numbers of a span, lowest first.
type gaps struct {
	next number // the lowest number that was not walked yet
	done bool   // there is none
}

// upTo walks to a held number. It returns the free run before it.
func (g *gaps) upTo(held number) (gap span, ok bool) {
	if g.done || g.next.Cmp(held) >= 0 {
		return span{}, false
	}
	gap = span{g.next, held.Sub64(1)}
	g.next = held
	return gap, true
}

// skip walks over numbers up to this one.
func (g *gaps) skip(last number) {
	g.next, g.done = last.AddWrap64(1), last == uint128.Max
}

// rest is the free run at the end of the span.
func (g *gaps) rest(s span) (gap span, ok bool) {
	return span{g.next, s.hi}, !g.done && g.next.Cmp(s.hi) <= 0
}

// tightest is the shortest free run so far, the lowest of several.
type tightest struct {
	gap   span
	found bool
}

func (t *tightest) offer(gap span, ok bool) {
	if ok && (!t.found || gap.length().Cmp(t.gap.length()) < 0) {
		t.gap, t.found = gap, true
	}
}

// length is the size less one, which does not wrap.
func (s span) length() number { return s.hi.Sub(s.lo) }

// smallestGap is the first number of the shortest run of free numbers of a span, the lowest of several.
func (t *tree[O]) smallestGap(s span) (number, bool) {
	best, g := tightest{}, gaps{next: s.lo}
	t.root.tightest(s, &g, &best)
	best.offer(g.rest(s))
	return best.gap.lo, best.found
}

func (n *node[O]) tightest(s span, g *gaps, best *tightest) {
	if n == nil || !n.span().overlaps(s) {
		return
	}
	held := n.heldSpan()
	if !s.contains(held) && n.inner != nil {
		n.inner.half[0].tightest(s, g, best)
		n.inner.half[1].tightest(s, g, best)
		return
	}
	best.offer(g.upTo(held.lo))
	if gap := n.gap(); !gap.IsZero() && (!best.found || gap.Sub64(1).Cmp(best.gap.length()) < 0) {
		lo := n.firstGap(gap)
		best.offer(span{lo, lo.Add(gap.Sub64(1))}, true)
	}
	g.skip(held.hi)
}

// firstGap is the lowest run between held numbers of the node that has this size. There is one.
func (n *node[O]) firstGap(size number) number {
	for {
		low, high := n.inner.half[0], n.inner.half[1]
		between := low.heldSpan().hi.Add64(1)
		switch {
		case low.gap() == size:
			n = low
		case high.heldSpan().lo.Sub(between) == size:
			return between
		default:
			n = high
		}
	}
}

// nth is the free number with so many free ones below it.
type nth struct {
	below number // of those that were not walked yet
	n     number
	found bool
}

func (c *nth) offer(gap span, ok bool) {
	switch {
	case c.found || !ok:
	case c.below.Cmp(gap.length()) <= 0:
		c.n, c.found = gap.lo.Add(c.below), true
	default:
		c.below = c.below.Sub(gap.length()).Sub64(1)
	}
}

// nthFree is the free number of a span that has so many free ones of the span below it.
func (t *tree[O]) nthFree(s span, below number) (number, bool) {
	count, g := nth{below: below}, gaps{next: s.lo}
	t.root.nthFree(s, &g, &count)
	count.offer(g.rest(s))
	return count.n, count.found
}

func (n *node[O]) nthFree(s span, g *gaps, count *nth) {
	if n == nil || count.found || !n.span().overlaps(s) {
		return
	}
	held := n.heldSpan()
	if n.inner == nil || s.contains(held) {
		count.offer(g.upTo(held.lo))
		if between := held.size().SubWrap(n.held()); n.inner == nil || count.below.Cmp(between) >= 0 {
			count.below = count.below.Sub(between)
			g.skip(held.hi)
			return
		}
	}
	n.inner.half[0].nthFree(s, g, count)
	n.inner.half[1].nthFree(s, g, count)
}
