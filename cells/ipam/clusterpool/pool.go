// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterpool

import (
	"fmt"
	"iter"
	"math/bits"
	"net/netip"
)

// pool is a cluster CIDR cut into blocks of one size, one per node.
type pool struct {
	prefix netip.Prefix
	mask   int
	size   uint64            // blocks
	used   uint64            // of them
	words  map[uint64]uint64 // 64 blocks each; a missing word is free
	cursor uint64            // where the next search begins

	changes uint64 // how often a block was taken or given back
}

func newPool(prefix netip.Prefix, mask int) *pool {
	prefix = prefix.Masked()
	return &pool{prefix: prefix, mask: mask, size: 1 << (mask - prefix.Bits()), words: map[uint64]uint64{}}
}

// String names the pool as error texts of the contract do.
func (p *pool) String() string { return fmt.Sprintf("clusterCIDR: %s, nodeMask: %d", p.prefix, p.mask) }

func (p *pool) full() bool { return p.used == p.size }

// next takes the first free block at or after the cursor, round to before it.
// It must not be called on a full pool.
func (p *pool) next() netip.Prefix {
	i := p.cursor
	for {
		word := p.words[i/64]
		if free := ^word >> (i % 64); free != 0 {
			i += uint64(bits.TrailingZeros64(free))
			if i < p.size {
				break
			}
			i = 0
			continue
		}
		if i = (i/64 + 1) * 64; i >= p.size {
			i = 0
		}
	}
	p.set(i)
	p.cursor = (i + 1) % p.size
	return p.block(i)
}

// block is the CIDR of the block of an index.
func (p *pool) block(i uint64) netip.Prefix {
	addr := p.prefix.Addr().AsSlice()
	for bit := p.mask - 1; i > 0; bit-- {
		addr[bit/8] |= byte(i&1) << (7 - bit%8)
		i >>= 1
	}
	a, _ := netip.AddrFromSlice(addr)
	return netip.PrefixFrom(a, p.mask)
}

// index is the index of the block that an address of the pool lies in.
func (p *pool) index(a netip.Addr) uint64 {
	addr := a.AsSlice()
	var i uint64
	for bit := p.prefix.Bits(); bit < p.mask; bit++ {
		i = i<<1 | uint64(addr[bit/8]>>(7-bit%8)&1)
	}
	return i
}

// span is the first and the last block that a CIDR touches. The CIDR overlaps
// the pool.
func (p *pool) span(c netip.Prefix) (first, last uint64) {
	if c.Bits() <= p.prefix.Bits() {
		return 0, p.size - 1
	}
	first = p.index(c.Addr())
	if c.Bits() >= p.mask {
		return first, first
	}
	return first, first + 1<<(p.mask-c.Bits()) - 1
}

// touched are the words that a CIDR touches, each with the bits of its blocks.
func (p *pool) touched(c netip.Prefix) iter.Seq2[uint64, uint64] {
	first, last := p.span(c)
	return func(yield func(word, bits uint64) bool) {
		for w := first / 64; w <= last/64; w++ {
			mask := ^uint64(0)
			if w == first/64 {
				mask <<= first % 64
			}
			if w == last/64 {
				mask &= ^uint64(0) >> (63 - last%64)
			}
			if !yield(w, mask) {
				return
			}
		}
	}
}

// taken reports whether any block that a CIDR touches is in use.
func (p *pool) taken(c netip.Prefix) bool {
	for w, mask := range p.touched(c) {
		if p.words[w]&mask != 0 {
			return true
		}
	}
	return false
}

func (p *pool) occupy(c netip.Prefix) {
	for w, mask := range p.touched(c) {
		p.store(w, p.words[w]|mask)
	}
}

func (p *pool) release(c netip.Prefix) {
	for w, mask := range p.touched(c) {
		p.store(w, p.words[w]&^mask)
	}
}

func (p *pool) set(i uint64) { p.store(i/64, p.words[i/64]|1<<(i%64)) }

// store keeps count of the blocks in use.
func (p *pool) store(w, word uint64) {
	p.changes++
	p.used += uint64(bits.OnesCount64(word)) - uint64(bits.OnesCount64(p.words[w]))
	if word == 0 {
		delete(p.words, w)
	} else {
		p.words[w] = word
	}
}
