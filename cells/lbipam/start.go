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
	all := slices.SortedFunc(maps.Values(a.services), oldestFirst)
	excluded := map[*service]*kept{}
	for _, s := range all {
		counted := byNamespace[s.key.Namespace]
		if counted == nil {
			counted = unasked{}
			byNamespace[s.key.Namespace] = counted
		}
		switch {
		case a.excluded[s]:
			excluded[s] = &kept{number: map[alloc.Family]int{}}
			a.keepShown(s, excluded[s], counted, true)
		case s.ours:
			a.boundHad(s, counted)
		}
	}
	for _, s := range all {
		if of := excluded[s]; of != nil { // a pool that has them may come back
			a.keepShown(s, of, byNamespace[s.key.Namespace], false)
			a.dropShown(s, of)
		}
	}
	for _, s := range all {
		if !a.excluded[s] {
			a.boundGivenUp(s, byNamespace[s.key.Namespace])
		}
	}
}

// kept are the addresses that count of what an excluded Service shows.
type kept struct {
	addrs  []netip.Addr
	number map[alloc.Family]int
}

// keepShown keeps as many addresses of a family as a Service may name, of those that a pool has, or of the others.
func (a *allocator) keepShown(s *service, of *kept, counted unasked, ofPools bool) {
	for _, addr := range s.shown {
		f := alloc.FamilyOf(addr)
		switch {
		case a.isOfPool(addr) != ofPools:
		case of.number[f] < a.settings.most && counted.count(addr):
			of.number[f]++
			of.addrs = append(of.addrs, addr)
		case ofPools:
			a.leftFree[s.key.Namespace]++
		}
	}
}

// dropShown has a Service show what is kept of it, and no more.
func (a *allocator) dropShown(s *service, of *kept) {
	for _, addr := range s.shown {
		if !slices.Contains(of.addrs, addr) {
			a.unuse(s, addr, shows)
		}
	}
	s.shown = of.addrs
}

// isOfPool reports whether some pool may have an address, whatever it selects.
func (a *allocator) isOfPool(addr netip.Addr) bool {
	return a.hasUnknownRanges() || slices.ContainsFunc(a.order, func(p *pool) bool { return p.covers(addr) })
}

// boundHad leaves of what a Service shows beyond its request what it may have without one, and what counts.
func (a *allocator) boundHad(s *service, counted unasked) {
	r := &s.request
	if len(r.had) > 0 || r.beyond > 0 { // what no pool has for it does not keep others of its names from it
		r.choose(s.object, slices.DeleteFunc(slices.Clone(s.shown), func(addr netip.Addr) bool { return !a.covered(s, addr) }), a.settings.most)
	}
	was := r.had
	r.had = nil
	for _, addr := range was {
		isFirst := len(r.ips) == 0 && slices.Contains(r.families, alloc.FamilyOf(addr)) && !hasFamily(r.had, alloc.FamilyOf(addr))
		switch {
		case isFirst || counted.count(addr):
			r.had = append(r.had, addr)
		case len(r.ips) > 0: // it is named
			r.beyond++
		}
	}
}

// boundGivenUp keeps from others what a Service shows and may not keep, up to as many addresses of a family as it may name, and what counts: a predecessor may
// have given it others, and the status is not seen with these yet. The rest is free.
func (a *allocator) boundGivenUp(s *service, counted unasked) {
	var keeps, ofPools, others []netip.Addr
	for _, addr := range s.shown {
		switch {
		case s.ours && a.covered(s, addr) && s.request.admits(addr, keeps):
			keeps = append(keeps, addr)
		case a.isOfPool(addr):
			ofPools = append(ofPools, addr)
		default:
			others = append(others, addr)
		}
	}
	var number perFamily
	for _, addr := range slices.Concat(ofPools, others) {
		f := alloc.FamilyOf(addr)
		switch {
		case number[f] < a.settings.most:
			number[f]++
		case !counted.count(addr):
			a.unuse(s, addr, shows)
		}
	}
	s.atStart = s.uses
}
