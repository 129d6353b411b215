// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lbipam

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/skep-operator/skep/resources/domain/alloc"
)

// use says in which ways a Service uses an address.
type use uint8

const (
	holds use = 1 << iota // it is allocated to the Service
	shows                 // it is in the observed status
	sent                  // it is in a write of the status whose outcome is not observed
)

// lease is an address that Services use. It is free when none uses it: an address that is taken from a Service is not
// allocated to another before the status of the first one is seen without it.
type lease struct {
	addr  netip.Addr
	users map[*service]use
}

// perFamily are numbers of addresses.
type perFamily [2]int

func newLease(addr netip.Addr) *lease { return &lease{addr, map[*service]use{}} }

// holders are the Services that the address is allocated to, the oldest first.
func (l *lease) holders() []*service {
	return slices.SortedFunc(l.others(nil, holds), oldestFirst)
}

// others are the users that use the address in one of these ways, beside one.
func (l *lease) others(than *service, uses use) iter.Seq[*service] {
	return func(yield func(*service) bool) {
		for s, u := range l.users {
			if s != than && u&uses != 0 && !yield(s) {
				return
			}
		}
	}
}

// leases are the addresses that are used.
type leases struct {
	byAddr map[netip.Addr]*lease
	// bySharingKey are the leases that Services with a sharing key hold.
	bySharingKey map[string]map[*lease]int
}

func newLeases() leases {
	return leases{byAddr: map[netip.Addr]*lease{}, bySharingKey: map[string]map[*lease]int{}}
}

// shared are the leases that Services with a sharing key hold, the lowest address first.
func (l *leases) shared(key string) []*lease {
	if key == "" {
		return nil
	}
	return slices.SortedFunc(maps.Keys(l.bySharingKey[key]), func(a, b *lease) int { return a.addr.Compare(b.addr) })
}

// countKey keeps bySharingKey.
func (l *leases) countKey(key string, of *lease, by int) {
	if key == "" {
		return
	}
	count := l.bySharingKey[key]
	if count == nil {
		count = map[*lease]int{}
		l.bySharingKey[key] = count
	}
	if count[of] += by; count[of] == 0 {
		delete(count, of)
	}
	if len(count) == 0 {
		delete(l.bySharingKey, key)
	}
}

// use adds a way in which a Service uses an address.
func (a *allocator) use(s *service, addr netip.Addr, u use) *lease {
	l := a.leases.byAddr[addr]
	if l == nil {
		l = newLease(addr)
		_ = a.addresses.Reserve(addr, l) // it is free, as there is no lease
		a.leases.byAddr[addr] = l
		a.markPoolsOf(addr)
	}
	if u == holds && l.users[s]&holds == 0 {
		s.held = append(s.held, addr)
		a.leases.countKey(s.request.sharing.key, l, 1)
	}
	if l.users[s] == 0 {
		s.uses[alloc.FamilyOf(addr)]++
	}
	l.users[s] |= u
	return l
}

// mayUse reports whether a Service may be given an address as far as its number goes. Those that it has given up are not free before its status is seen
// without them, which its owner can put off. So beside as many as it may name it uses no more than that again, or than it had at the start.
func (a *allocator) mayUse(s *service, addr netip.Addr) bool {
	return a.isUsedBy(s, addr) || a.mayUseMore(s, alloc.FamilyOf(addr))
}

// isUsedBy reports whether a Service uses an address in any way.
func (a *allocator) isUsedBy(s *service, addr netip.Addr) bool {
	l := a.leases.byAddr[addr]
	return l != nil && l.users[s] != 0
}

func (a *allocator) mayUseMore(s *service, f alloc.Family) bool {
	return s.uses[f] < a.settings.most+max(a.settings.most, s.atStart[f])
}

// adopt adds a lease that was allocated from a pool, for a Service to hold.
func (a *allocator) adopt(l *lease, s *service) {
	a.leases.byAddr[l.addr] = l
	a.use(s, l.addr, holds)
	a.markPoolsOf(l.addr)
}

// unuse removes a way in which a Service uses an address. What others wait for is retried later.
func (a *allocator) unuse(s *service, addr netip.Addr, u use) {
	l := a.leases.byAddr[addr]
	if l == nil || l.users[s]&u == 0 {
		return
	}
	if u == holds {
		s.held = slices.DeleteFunc(s.held, func(h netip.Addr) bool { return h == addr })
		a.leases.countKey(s.request.sharing.key, l, -1)
	}
	if l.users[s] &^= u; l.users[s] == 0 {
		delete(l.users, s)
		s.uses[alloc.FamilyOf(addr)]--
	}
	a.released = append(a.released, released{addr, s.request.sharing.key})
	if len(l.users) == 0 {
		delete(a.leases.byAddr, addr)
		a.addresses.Release(addr, l)
		a.markPoolsOf(addr)
	}
}

// released is an address that a Service uses no more in some way, or that other Services may share now.
type released struct {
	addr       netip.Addr
	sharingKey string
}

func (a *allocator) markPoolsOf(addr netip.Addr) {
	for _, p := range a.order {
		if p.covers(addr) {
			a.dirtyPools[p.name] = true
		}
	}
}

// oldestFirst is the order in which Services get addresses.
func oldestFirst(a, b *service) int {
	return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(a.key.Namespace, b.key.Namespace), cmp.Compare(a.key.Name, b.key.Name))
}
