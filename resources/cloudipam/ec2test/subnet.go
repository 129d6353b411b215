// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ec2test

import (
	"net/netip"
	"slices"
)

// subnet gives the address again that was released last.
type subnet struct {
	id, vpc, zone string
	cidr          netip.Prefix
	tags          map[string]string
	taken         map[netip.Addr]bool
	released      []netip.Addr
	filled        []netip.Addr // taken for no interface
	next          netip.Addr
	size          int
	ipv6          netip.Prefix // not valid if it has none
	ipv6Count     int          // prefixes of IPv6 that were given
}

// reserved are the addresses of a subnet that AWS has: the first four and the last.
const reserved = 5

func newSubnet(id, vpc, zone, cidr string, tags map[string]string) *subnet {
	p := netip.MustParsePrefix(cidr).Masked()
	s := &subnet{id: id, vpc: vpc, zone: zone, cidr: p, tags: tags, taken: map[netip.Addr]bool{}, size: 1 << (32 - p.Bits()), next: p.Addr()}
	for range reserved - 1 {
		s.taken[s.next] = true
		s.next = s.next.Next()
	}
	s.taken[s.last()] = true
	return s
}

func (s *subnet) last() netip.Addr {
	of := s.cidr.Addr().As4()
	n := uint32(of[0])<<24 | uint32(of[1])<<16 | uint32(of[2])<<8 | uint32(of[3])
	n += uint32(s.size) - 1
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

func (s *subnet) free() int { return s.size - len(s.taken) }

// allocate returns addresses, or false if there are too few.
func (s *subnet) allocate(count int) (list []string, ok bool) {
	if s.free() < count {
		return nil, false
	}
	for range count {
		list = append(list, s.one().String())
	}
	return list, true
}

func (s *subnet) one() netip.Addr {
	for len(s.released) > 0 {
		a := s.released[len(s.released)-1]
		s.released = s.released[:len(s.released)-1]
		if !s.taken[a] {
			s.taken[a] = true
			return a
		}
	}
	for s.taken[s.next] {
		if s.next = s.next.Next(); !s.cidr.Contains(s.next) {
			s.next = s.cidr.Addr()
		}
	}
	s.taken[s.next] = true
	return s.next
}

// allocatePrefixes returns prefixes of 16 addresses of which none is taken, or false if there are too few.
func (s *subnet) allocatePrefixes(count int) (list []string, ok bool) {
	var found []netip.Prefix
	for a := s.cidr.Addr(); s.cidr.Contains(a) && len(found) < count; {
		p := netip.PrefixFrom(a, 28)
		isFree, next := true, a
		for p.Contains(next) {
			isFree = isFree && !s.taken[next]
			next = next.Next()
		}
		if isFree {
			found = append(found, p)
		}
		a = next
	}
	if len(found) < count {
		return nil, false
	}
	for _, p := range found {
		for a := p.Addr(); p.Contains(a); a = a.Next() {
			s.taken[a] = true
		}
		list = append(list, p.String())
	}
	return list, true
}

func (s *subnet) release(addresses ...string) {
	for _, text := range addresses {
		a := netip.MustParseAddr(text)
		delete(s.taken, a)
		s.released = append(s.released, a)
	}
}

func (s *subnet) releasePrefixes(prefixes ...string) {
	for _, text := range prefixes {
		p := netip.MustParsePrefix(text)
		for a := p.Addr(); p.Contains(a); a = a.Next() {
			delete(s.taken, a)
		}
	}
}

// fill takes addresses until some are free, every second one first, so that no prefix is free.
func (s *subnet) fill(free int) {
	var all []netip.Addr
	for a := s.cidr.Addr(); s.cidr.Contains(a); a = a.Next() {
		all = append(all, a)
	}
	slices.SortStableFunc(all, func(a, b netip.Addr) int { return int(a.As4()[3]%2) - int(b.As4()[3]%2) })
	for _, a := range all {
		if s.free() > free && !s.taken[a] {
			s.taken[a] = true
			s.filled = append(s.filled, a)
		}
	}
}

// empty frees what was filled.
func (s *subnet) empty() {
	for _, a := range s.filled {
		delete(s.taken, a)
	}
	s.filled = nil
}
