// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package alloc

import (
	"iter"
	"net/netip"
	"slices"
)

// Sightings are the CIDRs that owners are seen with. Unlike those of [Blocks] they may overlap, also those of several owners.
// CIDRs are masked. Not safe for concurrent use.
type Sightings[O comparable] struct {
	owners  map[netip.Prefix][]O // in the order in which they were seen
	of      map[O][]netip.Prefix
	lengths [2]map[int]int // how many CIDRs have a prefix of this length, by family
}

// NewSightings returns Sightings without any.
func NewSightings[O comparable]() *Sightings[O] {
	return &Sightings[O]{owners: map[netip.Prefix][]O{}, of: map[O][]netip.Prefix{}, lengths: [2]map[int]int{{}, {}}}
}

// Len is how many CIDRs are seen.
func (s *Sightings[O]) Len() int { return len(s.owners) }

// Of is the CIDRs that an owner is seen with, sorted. The slice must not be changed.
func (s *Sightings[O]) Of(owner O) []netip.Prefix { return s.of[owner] }

// Set replaces the CIDRs of an owner. It returns those that it had before and those that it has now, if they differ.
func (s *Sightings[O]) Set(owner O, cidrs ...netip.Prefix) (changed []netip.Prefix) {
	now := slices.Compact(slices.SortedFunc(slices.Values(cidrs), netip.Prefix.Compare))
	before := s.of[owner]
	if slices.Equal(now, before) {
		return nil
	}
	for _, c := range before {
		s.remove(c, owner)
	}
	delete(s.of, owner)
	for _, c := range now {
		s.add(c, owner)
		s.of[owner] = now
	}
	return slices.Concat(before, now)
}

func (s *Sightings[O]) add(c netip.Prefix, owner O) {
	if len(s.owners[c]) == 0 {
		s.lengths[FamilyOf(c.Addr())][c.Bits()]++
	}
	s.owners[c] = append(s.owners[c], owner)
}

func (s *Sightings[O]) remove(c netip.Prefix, owner O) {
	if s.owners[c] = slices.DeleteFunc(s.owners[c], func(o O) bool { return o == owner }); len(s.owners[c]) > 0 {
		return
	}
	delete(s.owners, c)
	of := s.lengths[FamilyOf(c.Addr())]
	if of[c.Bits()]--; of[c.Bits()] == 0 {
		delete(of, c.Bits())
	}
}

// Overlapping is the CIDRs that overlap another one, each with each of its owners, in no order. Nothing may be changed during
// the iteration.
func (s *Sightings[O]) Overlapping(c netip.Prefix) iter.Seq2[netip.Prefix, O] {
	return func(yield func(netip.Prefix, O) bool) {
		for _, seen := range s.overlapping(c) {
			for _, owner := range s.owners[seen] {
				if !yield(seen, owner) {
					return
				}
			}
		}
	}
}

// overlapping looks at all CIDRs only where there are smaller ones.
func (s *Sightings[O]) overlapping(c netip.Prefix) (list []netip.Prefix) {
	for bits := range s.lengths[FamilyOf(c.Addr())] {
		if bits > c.Bits() {
			return s.search(c)
		}
		whole := netip.PrefixFrom(c.Addr(), bits).Masked()
		if len(s.owners[whole]) > 0 {
			list = append(list, whole)
		}
	}
	return list
}

func (s *Sightings[O]) search(c netip.Prefix) (list []netip.Prefix) {
	for seen := range s.owners {
		if seen.Overlaps(c) {
			list = append(list, seen)
		}
	}
	return list
}
