// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import "math/bits"

// group is the namespace of the endpoints of a slice, and in the mode identity their identity.
type group struct {
	namespace string
	identity  int64
}

// groupBins are the non-empty bins of a group: those of idle slices, and of queued ones. Finding the fullest slice takes
// the same time with any number of slices.
type groupBins struct {
	fills [2]fillSet
}

// fillSet is a set of fills.
type fillSet []uint64

func (f fillSet) set(fill int)   { f[fill/64] |= 1 << (fill % 64) }
func (f fillSet) clear(fill int) { f[fill/64] &^= 1 << (fill % 64) }

// highest is the highest fill, -1 for none.
func (f fillSet) highest() int {
	for i := len(f) - 1; i >= 0; i-- {
		if f[i] != 0 {
			return i*64 + bits.Len64(f[i]) - 1
		}
	}
	return -1
}

// bin is the list of the slices of a group with the same fill, which have room.
type bin struct {
	group  group
	queued bool
	fill   int
}

func (b bin) queueIndex() int {
	if b.queued {
		return 1
	}
	return 0
}

// bins are the bins of all groups.
type bins struct {
	capacity int
	groups   map[group]*groupBins
	heads    map[bin]*slice
}

func newBins(capacity int) *bins {
	return &bins{capacity: capacity, groups: map[group]*groupBins{}, heads: map[bin]*slice{}}
}

// update moves a slice to its bin after a change of the slice.
func (b *bins) update(s *slice) {
	at, has := s.currentBin(b.capacity)
	if s.binned && has && s.bin == at {
		return
	}
	b.remove(s)
	if !has {
		return
	}
	g := b.groups[at.group]
	if g == nil {
		words := b.capacity/64 + 1
		room := make(fillSet, 2*words)
		g = &groupBins{fills: [2]fillSet{room[:words:words], room[words:]}}
		b.groups[at.group] = g
	}
	head := b.heads[at]
	if s.bin, s.binned, s.next = at, true, head; head != nil {
		head.prev = s
	}
	b.heads[at] = s
	g.fills[at.queueIndex()].set(at.fill)
}

// remove removes a slice from its bin.
func (b *bins) remove(s *slice) {
	if !s.binned {
		return
	}
	if s.next != nil {
		s.next.prev = s.prev
	}
	switch {
	case s.prev != nil:
		s.prev.next = s.next
	case s.next != nil:
		b.heads[s.bin] = s.next
	default:
		delete(b.heads, s.bin)
		g := b.groups[s.bin.group]
		g.fills[s.bin.queueIndex()].clear(s.bin.fill)
		if g.fills[0].highest() < 0 && g.fills[1].highest() < 0 {
			delete(b.groups, s.bin.group)
		}
	}
	s.binned, s.prev, s.next = false, nil, nil
}

// find returns the slice for a new endpoint of the group, nil for a new slice. Queued slices come first, as they cost no
// further write, then the fullest. An empty one is the last choice: it is used instead of deleted.
func (b *bins) find(g group) *slice {
	of := b.groups[g]
	if of == nil {
		return nil
	}
	queued, idle := of.fills[1].highest(), of.fills[0].highest()
	switch {
	case queued > 0:
		return b.heads[bin{g, true, queued}]
	case idle > 0:
		return b.heads[bin{g, false, idle}]
	case queued == 0:
		return b.heads[bin{g, true, 0}]
	case idle == 0:
		return b.heads[bin{g, false, 0}]
	}
	return nil
}
