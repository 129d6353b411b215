// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import "math/bits"

// group is whose endpoints a slice holds: those of a namespace, and of one
// identity where slices are made by identity.
type group struct {
	namespace string
	identity  int64
}

// shelf is where the slices of a group that have room stand, by how full they
// are. Finding the fullest takes no longer the more slices there are.
type shelf struct {
	rows [2]row // those that nothing is to be written of, and those that wait to be written
}

// row is which levels have slices.
type row []uint64

func (r row) set(level int)   { r[level/64] |= 1 << (level % 64) }
func (r row) clear(level int) { r[level/64] &^= 1 << (level % 64) }

// highest is the highest level that has slices, -1 if none has.
func (r row) highest() int {
	for i := len(r) - 1; i >= 0; i-- {
		if r[i] != 0 {
			return i*64 + bits.Len64(r[i]) - 1
		}
	}
	return -1
}

// place is a level of a shelf. The slices there are a list.
type place struct {
	group  group
	queued bool
	level  int
}

func (pl place) row() int {
	if pl.queued {
		return 1
	}
	return 0
}

// shelves are those of all groups.
type shelves struct {
	capacity int
	groups   map[group]*shelf
	heads    map[place]*slice
}

func newShelves(capacity int) *shelves {
	return &shelves{capacity: capacity, groups: map[group]*shelf{}, heads: map[place]*slice{}}
}

// put moves a slice to where it belongs, after anything about it has changed.
func (sh *shelves) put(s *slice) {
	at, has := s.place(sh.capacity)
	if s.shelved && has && s.at == at {
		return
	}
	sh.take(s)
	if !has {
		return
	}
	g := sh.groups[at.group]
	if g == nil {
		words := sh.capacity/64 + 1
		room := make(row, 2*words)
		g = &shelf{rows: [2]row{room[:words:words], room[words:]}}
		sh.groups[at.group] = g
	}
	head := sh.heads[at]
	if s.at, s.shelved, s.next = at, true, head; head != nil {
		head.prev = s
	}
	sh.heads[at] = s
	g.rows[at.row()].set(at.level)
}

// take takes a slice off its shelf.
func (sh *shelves) take(s *slice) {
	if !s.shelved {
		return
	}
	if s.next != nil {
		s.next.prev = s.prev
	}
	switch {
	case s.prev != nil:
		s.prev.next = s.next
	case s.next != nil:
		sh.heads[s.at] = s.next
	default:
		delete(sh.heads, s.at)
		g := sh.groups[s.at.group]
		g.rows[s.at.row()].clear(s.at.level)
		if g.rows[0].highest() < 0 && g.rows[1].highest() < 0 {
			delete(sh.groups, s.at.group)
		}
	}
	s.shelved, s.prev, s.next = false, nil, nil
}

// find returns the slice that a new endpoint of the group goes to, nil for a new
// one. A slice that is to be written anyhow comes before others: it costs no
// further write. Among those the fullest is taken, and one that is empty last, in
// the place of a deletion.
func (sh *shelves) find(g group) *slice {
	rows := sh.groups[g]
	if rows == nil {
		return nil
	}
	queued, idle := rows.rows[1].highest(), rows.rows[0].highest()
	switch {
	case queued > 0:
		return sh.heads[place{g, true, queued}]
	case idle > 0:
		return sh.heads[place{g, false, idle}]
	case queued == 0:
		return sh.heads[place{g, true, 0}]
	case idle == 0:
		return sh.heads[place{g, false, 0}]
	}
	return nil
}
