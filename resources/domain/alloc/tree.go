// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package alloc

import (
	"lukechampine.com/uint128"
)

type number = uint128.Uint128

// span is the numbers from lo to hi.
type span struct{ lo, hi number }

func (s span) contains(o span) bool { return s.lo.Cmp(o.lo) <= 0 && o.hi.Cmp(s.hi) <= 0 }

func (s span) overlaps(o span) bool { return s.lo.Cmp(o.hi) <= 0 && o.lo.Cmp(s.hi) <= 0 }

// clip is the part of s in o. They overlap.
func (s span) clip(o span) span { return span{larger(s.lo, o.lo), smaller(s.hi, o.hi)} }

// size wraps to 0 if the span is all 128-bit numbers.
func (s span) size() number { return s.hi.SubWrap(s.lo).AddWrap64(1) }

func larger(a, b number) number {
	if a.Cmp(b) < 0 {
		return b
	}
	return a
}

func smaller(a, b number) number {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

// ones is 2^order - 1: the last number of an aligned block that starts with 0.
func ones(order uint8) number { return uint128.Max.Rsh(128 - uint(order)) }

// block is the aligned block of 2^order numbers that contains n.
func block(n number, order uint8) span {
	lo := n.Rsh(uint(order)).Lsh(uint(order))
	return span{lo, lo.Or(ones(order))}
}

// tree is a set of disjoint aligned blocks of 2^order numbers, each with an owner: a binary trie over the bits of numbers
// whose nodes have at least one block in each half. Its shape depends only on its content, a path has no more nodes than
// numbers have bits, and free numbers take no memory.
type tree[O comparable] struct {
	root    *node[O]
	size    int    // held blocks
	changes uint64 // how often one was added or removed
}

// node is a held block, or what is held in an aligned block.
type node[O comparable] struct {
	lo    number
	order uint8
	owner O          // of a held block
	inner *branch[O] // nil for a held block
}

// branch is what is held in both halves of a node.
type branch[O comparable] struct {
	half [2]*node[O]

	held        number // how many, wrapping to 0 if that is all 128-bit numbers
	left, right number // free ones below the first held one, and above the last
	gap         number // the length of the shortest run of free ones between two held ones, 0 if there is none
	free        int16  // the order of the largest aligned block that is free, -1 if there is none
	finest      uint8  // the order of the smallest block that is held
}

func (n *node[O]) span() span { return span{n.lo, n.lo.Or(ones(n.order))} }

func (n *node[O]) held() number {
	if n.inner == nil {
		return ones(n.order).AddWrap64(1)
	}
	return n.inner.held
}

// runs are how many numbers of the node are free below its first held one, and above its last.
func (n *node[O]) runs() (left, right number) {
	if n.inner == nil {
		return number{}, number{}
	}
	return n.inner.left, n.inner.right
}

// heldSpan is the numbers from the first held one to the last.
func (n *node[O]) heldSpan() span {
	left, right := n.runs()
	s := n.span()
	return span{s.lo.Add(left), s.hi.Sub(right)}
}

func (n *node[O]) gap() number {
	if n.inner == nil {
		return number{}
	}
	return n.inner.gap
}

func (n *node[O]) free() int16 {
	if n.inner == nil {
		return -1
	}
	return n.inner.free
}

func (n *node[O]) finest() uint8 {
	if n.inner == nil {
		return n.order
	}
	return n.inner.finest
}

// halfOf is the index of the half that a number of the node is in.
func (n *node[O]) halfOf(x number) int { return int(x.Rsh(uint(n.order)-1).Lo & 1) }

// update computes what a branch knows of its halves.
func (n *node[O]) update() {
	b, s := n.inner, n.span()
	low, high := b.half[0], b.half[1]
	first, last := low.heldSpan(), high.heldSpan()
	b.held = low.held().AddWrap(high.held())
	b.left, b.right = first.lo.Sub(s.lo), s.hi.Sub(last.hi)
	b.gap = shorterGap(shorterGap(low.gap(), last.lo.Sub(first.hi).Sub64(1)), high.gap())
	b.finest = min(low.finest(), high.finest())
	b.free = -1
	for _, half := range b.half {
		b.free = max(b.free, half.free())
		if half.order < n.order-1 { // the other half of this half has nothing
			b.free = max(b.free, int16(n.order)-2)
		}
	}
}

// shorterGap is the length of the shorter of two gaps, of which 0 is none.
func shorterGap(a, b number) number {
	if a.IsZero() || !b.IsZero() && b.Cmp(a) < 0 {
		return b
	}
	return a
}

// insert adds a block that overlaps none.
func (t *tree[O]) insert(lo number, order uint8, owner O) {
	t.root = t.root.insert(&node[O]{lo: lo, order: order, owner: owner})
	t.size, t.changes = t.size+1, t.changes+1
}

func (n *node[O]) insert(added *node[O]) *node[O] {
	switch {
	case n == nil:
		return added
	case n.inner != nil && n.span().contains(added.span()):
		h := n.halfOf(added.lo)
		n.inner.half[h] = n.inner.half[h].insert(added)
		n.update()
		return n
	}
	order := uint8(n.lo.Xor(added.lo).Len()) // of the smallest block with both
	both := &node[O]{lo: block(n.lo, order).lo, order: order, inner: &branch[O]{}}
	both.inner.half[both.halfOf(n.lo)] = n
	both.inner.half[both.halfOf(added.lo)] = added
	both.update()
	return both
}

// remove removes a block that is held.
func (t *tree[O]) remove(lo number) {
	t.root = t.root.remove(lo)
	t.size, t.changes = t.size-1, t.changes+1
}

func (n *node[O]) remove(lo number) *node[O] {
	if n.inner == nil {
		return nil
	}
	h := n.halfOf(lo)
	if n.inner.half[h] = n.inner.half[h].remove(lo); n.inner.half[h] == nil {
		return n.inner.half[1-h]
	}
	n.update()
	return n
}

// first is the lowest held block that overlaps a span, nil if there is none.
func (t *tree[O]) first(s span) (found *node[O]) {
	t.root.each(s, func(n *node[O]) bool {
		found = n
		return false
	})
	return found
}

// each calls yield for each held block that overlaps a span, lowest first, until it returns false.
func (n *node[O]) each(s span, yield func(*node[O]) bool) bool {
	switch {
	case n == nil || !n.span().overlaps(s):
		return true
	case n.inner == nil:
		return yield(n)
	}
	return n.inner.half[0].each(s, yield) && n.inner.half[1].each(s, yield)
}

// held is how many numbers of a span are held. It wraps to 0 if that is all 128-bit numbers.
func (t *tree[O]) held(s span) number { return t.root.heldIn(s) }

func (n *node[O]) heldIn(s span) number {
	switch {
	case n == nil || !n.span().overlaps(s):
		return number{}
	case s.contains(n.span()):
		return n.held()
	case n.inner == nil:
		return n.span().clip(s).size()
	}
	return n.inner.half[0].heldIn(s).AddWrap(n.inner.half[1].heldIn(s))
}

// touched is how many aligned blocks of an order that lie in a span are held, or some number of them is. The span is made
// of such blocks. It wraps to 0 as held does.
func (t *tree[O]) touched(s span, order uint8) number { return t.root.touchedIn(s, order) }

func (n *node[O]) touchedIn(s span, order uint8) number {
	switch {
	case n == nil || !n.span().overlaps(s):
		return number{}
	case n.order <= order:
		return uint128.From64(1)
	case n.finest() >= order && s.contains(n.span()):
		return blocksOf(n.held(), order)
	case n.inner == nil:
		return blocksOf(n.span().clip(s).size(), order)
	}
	low, high := n.inner.half[0], n.inner.half[1]
	return low.touchedIn(s, order).AddWrap(high.touchedIn(s, order))
}

// blocksOf is how many blocks of an order have n numbers together, where 0 stands for 2^128, too.
func blocksOf(n number, order uint8) number {
	if n.IsZero() && order > 0 {
		return uint128.From64(1).Lsh(128 - uint(order))
	}
	return n.Rsh(uint(order))
}

// at is the held block with a number, nil if it is free.
func (t *tree[O]) at(n number) *node[O] { return t.first(span{n, n}) }

// ownerOf is the owner of exactly this block.
func (t *tree[O]) ownerOf(lo number, order uint8) (owner O, held bool) {
	if n := t.at(lo); n != nil && n.lo == lo && n.order == order {
		return n.owner, true
	}
	return owner, false
}

// release removes exactly this block, if it has this owner.
func (t *tree[O]) release(lo number, order uint8, owner O) bool {
	by, held := t.ownerOf(lo, order)
	if !held || by != owner {
		return false
	}
	t.remove(lo)
	return true
}
