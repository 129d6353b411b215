// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lbipam

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/skep-operator/skep/resources/domain/alloc"
)

// unasked are the addresses that the statuses of the Services of one namespace show at a start and that these need not have: any writer of a status
// may have put them there while no operator led.
type unasked map[netip.Addr]bool

// count reports whether an address still counts. One that several Services show counts once.
func (u unasked) count(addr netip.Addr) bool {
	if !u[addr] && len(u) >= mostLeft {
		return false
	}
	u[addr] = true
	return true
}

// boundShown leaves to Services what they may have of what they show at a start, and of all else so many addresses of a namespace, those of its oldest
// Services first (LBIP-40). It is called before any of them is given an address.
func (a *allocator) boundShown() {
	byNamespace := map[string]unasked{}
	for _, s := range slices.SortedFunc(maps.Values(a.services), oldestFirst) {
		namespace := s.key.Namespace
		if byNamespace[namespace] == nil {
			byNamespace[namespace] = unasked{}
		}
		switch {
		case a.excluded[s]:
			a.boundExcluded(s, byNamespace[namespace])
		case s.ours:
			a.boundHad(s, byNamespace[namespace])
		}
	}
}

// boundExcluded leaves of what a Service shows that options exclude as many addresses of a family as it may name.
func (a *allocator) boundExcluded(s *service, counted unasked) {
	var kept []netip.Addr
	number := map[alloc.Family]int{}
	for _, addr := range s.shown {
		f := alloc.FamilyOf(addr)
		switch {
		case !a.isOfPool(addr):
		case number[f] < a.settings.most && counted.count(addr):
			number[f]++
			kept = append(kept, addr)
			continue
		default:
			a.leftFree[s.key.Namespace]++
		}
		a.unuse(s, addr, shows)
	}
	s.shown = kept
}

// isOfPool reports whether some pool may have an address, whatever it selects.
func (a *allocator) isOfPool(addr netip.Addr) bool {
	return a.hasUnknownRanges() || slices.ContainsFunc(a.order, func(p *pool) bool { return p.covers(addr) })
}

// boundHad leaves of what a Service shows beyond its request what it may have without one, and what counts.
func (a *allocator) boundHad(s *service, counted unasked) {
	r := &s.request
	was := r.had
	r.had = nil
	for _, addr := range was {
		isFirst := len(r.ips) == 0 && slices.Contains(r.families, alloc.FamilyOf(addr)) && !hasFamily(r.had, alloc.FamilyOf(addr))
		switch {
		case a.covered(s, addr) && (isFirst || counted.count(addr)):
			r.had = append(r.had, addr)
		case len(r.ips) > 0: // it is named
			r.beyond++
		}
	}
}
