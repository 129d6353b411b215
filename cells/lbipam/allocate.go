// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lbipam

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/skep-operator/skep/resources/domain/alloc"
)

// The reasons of the condition of Services.
const (
	reasonSatisfied    = "satisfied"
	reasonNoPool       = "no_pool"
	reasonOutOfIPs     = "out_of_ips"
	reasonSelector     = "pool_selector_mismatch"
	reasonTaken        = "already_allocated"
	reasonIncompatible = "already_allocated_incompatible_service"
	reasonReserved     = "reserved"
	reasonInvalidIP    = "invalid_ip"
	reasonTooMany      = "too_many_ips"
)

const (
	messageNoPool   = "There are no enabled CiliumLoadBalancerIPPools that match this service"
	messageOutOfIPs = "All enabled CiliumLoadBalancerIPPools that match this service ran out of allocatable IPs"
	messageGivenUp  = "The service gets other IPs when its status is seen without those that it has given up"
)

// reconcile brings Services to their allocations: invalid ones are dropped, then all import what their status shows, and then
// each gets what it misses, the oldest first.
func (a *allocator) reconcile(all []*service) {
	all = slices.DeleteFunc(all, func(s *service) bool { return !s.ours })
	slices.SortFunc(all, oldestFirst)
	all = slices.Compact(all)
	var losers []*service
	for _, s := range all {
		a.waiting.remove(s)
		losers = append(losers, a.dropInvalid(s)...)
	}
	if len(losers) > 0 {
		for _, s := range losers {
			a.waiting.remove(s)
		}
		all = append(all, losers...)
		slices.SortFunc(all, oldestFirst)
		all = slices.Compact(all)
	}
	for _, s := range all {
		a.importShown(s)
	}
	for _, s := range all {
		a.chooseAgain(s)
		a.allocateMissing(s)
		a.mark(s)
	}
}

// dropInvalid drops allocations that a Service may not keep. losers are younger Services of other namespaces, which lose an address that they cannot
// share with it any more, whichever of them has changed (LBIP-37).
func (a *allocator) dropInvalid(s *service) (losers []*service) {
	var kept []netip.Addr
	for _, addr := range slices.Clone(s.held) {
		if !a.covered(s, addr) || !s.request.admits(addr, kept) {
			a.unuse(s, addr, holds)
			continue
		}
		younger, older, stays := a.opponents(s, addr)
		if !stays {
			a.unuse(s, addr, holds)
			if older != nil {
				a.contested = append(a.contested, contest{addr, s, older})
			}
			continue
		}
		kept = append(kept, addr)
		for _, other := range younger {
			a.unuse(other, addr, holds)
			a.contested = append(a.contested, contest{addr, other, s})
		}
		losers = append(losers, younger...)
	}
	return losers
}

// opponents are the Services of other namespaces that hold an address and cannot share it with one that holds it, too: those that are younger, and the
// oldest of the others. stays is whether the Service keeps the address: there is none of the others, nor one of its own namespace.
func (a *allocator) opponents(s *service, addr netip.Addr) (younger []*service, older *service, stays bool) {
	stays = true
	for other := range a.leases.byAddr[addr].against(s, holds) {
		switch {
		case other.key.Namespace == s.key.Namespace:
			stays = false
		case oldestFirst(s, other) < 0:
			younger = append(younger, other)
		default:
			stays = false
			if older == nil || oldestFirst(other, older) < 0 {
				older = other
			}
		}
	}
	slices.SortFunc(younger, oldestFirst)
	return younger, older, stays
}

// importShown allocates to a Service what its status shows, where it may have that: any writer may have put it there since the start, and then that is what it
// could be given.
func (a *allocator) importShown(s *service) {
	counts := holds
	if !a.starting { // what another one still shows is not free
		counts |= shows | sent
	}
	for _, addr := range s.shown {
		switch {
		case slices.Contains(s.held, addr) || !a.covered(s, addr) || !s.request.admits(addr, s.held):
		case len(s.request.ips) == 0 && s.request.invalid != "" && !a.starting: // any writer may have put it there
		case !a.starting && !a.mayUse(s, addr):
		case !a.starting && !s.wasUnknown && !a.isUsedBy(s, addr) && !a.gives(s, addr):
		case a.sharesWith(s, addr, counts):
			a.use(s, addr, holds)
			a.use(s, addr, shows)
		case a.starting:
			has := slices.MinFunc(slices.Collect(a.leases.byAddr[addr].against(s, counts)), oldestFirst)
			a.contested = append(a.contested, contest{addr, s, has})
		}
	}
}

// contest is an address that the statuses of two Services show which cannot share it. The older one keeps it: while no operator led, any
// writer of the other's status may have put it there, or there of the one that keeps it (LBIP-33). It is also one that they shared, and cannot share
// any more (LBIP-37).
type contest struct {
	addr       netip.Addr
	loses, has *service
}

func (c contest) lossMessage() string {
	return fmt.Sprintf("The IP '%s' that the status showed belongs to Service %s, whose status shows it, too, and which is older", c.addr, c.has.key)
}

func (c contest) claimMessage() string {
	return fmt.Sprintf("The IP '%s' was shown by the status of Service %s, too, which is younger and loses it", c.addr, c.loses.key)
}

// sharesWith reports whether the others that use an address in one of these ways are compatible with a Service.
func (a *allocator) sharesWith(s *service, addr netip.Addr, how use) bool {
	l := a.leases.byAddr[addr]
	if l == nil {
		return true
	}
	for range l.against(s, how) {
		return false
	}
	return true
}

// against are those that use the address in one of these ways and cannot have it together with a Service.
func (l *lease) against(s *service, how use) iter.Seq[*service] {
	return func(yield func(*service) bool) {
		for other := range l.others(s, how) {
			of, by := &s.request.sharing, &other.request.sharing
			if (of.differs(by) != "" || of.collides(by) != "" && !l.sharedAtStart(s, other)) && !yield(other) {
				return
			}
		}
	}
}

// sharedAtStart reports whether two Services show the address since before the allocator began, with the ports that they have: who gave it to both
// knew agents that serve them. None serve one port and protocol for both, so that of different namespaces the older has it.
func (l *lease) sharedAtStart(a, b *service) bool {
	return a.sinceStart && b.sinceStart && l.users[a]&shows != 0 && l.users[b]&shows != 0 &&
		(a.key.Namespace == b.key.Namespace || !a.request.sharing.hasPortOf(&b.request.sharing))
}

// chooseAgain has a Service that names too many addresses get others of them where it has lost some that it had.
func (a *allocator) chooseAgain(s *service) {
	r := &s.request
	if r.beyond > 0 && slices.ContainsFunc(r.kept, func(addr netip.Addr) bool { return !slices.Contains(s.held, addr) }) {
		r.choose(s.object, s.held, a.settings.most)
	}
}

// allocateMissing allocates what a Service wants and does not hold. One that misses something waits.
func (a *allocator) allocateMissing(s *service) {
	s.result = result{}
	if s.request.invalid != "" {
		s.result = result{reason: reasonInvalidIP, message: fmt.Sprintf("The requested IP '%s' is not valid", s.request.invalid)}
	}
	if s.request.beyond > 0 {
		s.result = result{reason: reasonTooMany, message: fmt.Sprintf("The service asks for %d IPs more than the %d of a family that it may have", s.request.beyond, a.settings.most)}
	}
	var missing []alloc.Family
	for _, addr := range s.request.ips {
		if !slices.Contains(s.held, addr) {
			if r := a.allocateThis(s, addr); r != (result{}) {
				s.result = r
			}
		}
	}
	if len(s.request.ips) == 0 && s.request.invalid == "" {
		for _, f := range s.request.families {
			if hasFamily(s.held, f) {
				continue
			}
			if r := a.allocateAny(s, f); r != (result{}) {
				s.result = r
				missing = append(missing, f)
			}
		}
	}
	if s.result != (result{}) {
		a.waiting.add(s, missing)
	}
}

// allocateThis allocates a requested address.
func (a *allocator) allocateThis(s *service, addr netip.Addr) result {
	reason, message := reasonNoPool, "No pool exists with a CIDR containing '%s'"
	var from *pool
	for _, p := range a.order {
		if !p.serves() || !p.covers(addr) {
			continue
		}
		reason, message = reasonSelector, "The pool with the CIDR containing '%s', doesn't select this service"
		if p.selects(s) {
			from = p
			break
		}
	}
	if from == nil {
		return result{reason: reason, message: fmt.Sprintf(message, addr)}
	}
	if len(a.unknownServices) > 0 {
		return a.blocked()
	}
	l := a.leases.byAddr[addr]
	if l != nil {
		if r := l.refusal(s); r != (result{}) {
			return r
		}
	}
	if !a.mayUse(s, addr) {
		return givenUp
	}
	if l != nil {
		a.use(s, addr, holds)
		return result{}
	}
	l = newLease(addr)
	if from.addresses.Allocate(addr, l) != nil { // it is free, so it is withheld
		return result{reason: reasonReserved, message: fmt.Sprintf("The IP '%s' is the first or the last of its range, and the pool does not allow those", addr)}
	}
	a.adopt(l, s)
	return result{}
}

// refusal is why a Service cannot have an address that is in use, zero if it can.
func (l *lease) refusal(s *service) result {
	by, reason := l.blocker(s)
	switch {
	case by == nil:
		return result{}
	case s.request.sharing.key == "":
		return result{reason: reasonTaken, message: fmt.Sprintf("The IP '%s' is already allocated to another service", l.addr), has: by.key}
	}
	return result{reason: reasonIncompatible, message: fmt.Sprintf("The IP '%s' is already allocated to an incompatible service. Reason: %s", l.addr, reason), has: by.key}
}

// blocker is the oldest Service with which another one cannot share the address, nil if it can have it. There may be thousands that share it, and
// thousands that ask for it at each change.
func (l *lease) blocker(s *service) (by *service, reason string) {
	for other := range l.others(s, holds|shows|sent) {
		if by != nil && oldestFirst(by, other) < 0 {
			continue
		}
		if text := incompatible(&s.request.sharing, &other.request.sharing); text != "" {
			by, reason = other, text
		}
	}
	return by, reason
}

// allocateAny allocates an address of a family: one that it can share, or a free one.
func (a *allocator) allocateAny(s *service, f alloc.Family) result {
	if len(a.unknownServices) > 0 {
		return a.blocked()
	}
	if !a.mayUseMore(s, f) {
		return givenUp
	}
	for _, l := range a.leases.shared(s.request.sharing.key) {
		if by, _ := l.blocker(s); by == nil && alloc.FamilyOf(l.addr) == f && a.served(s, l.addr) {
			a.use(s, l.addr, holds)
			return result{}
		}
	}
	why := result{reason: reasonNoPool, message: messageNoPool}
	for _, p := range a.order {
		if !p.serves() || !p.hasFamily(f) || !p.selects(s) {
			continue
		}
		why = result{reason: reasonOutOfIPs, message: messageOutOfIPs}
		if p.full[f] {
			continue
		}
		l := newLease(netip.Addr{})
		addr, err := p.addresses.AllocateTightest(f, l)
		if err != nil {
			p.full[f] = true
			continue
		}
		l.addr = addr
		a.adopt(l, s)
		return result{}
	}
	return why
}

// givenUp is the result for a Service whose status is to be without addresses before it gets others. That it is written removes these.
var givenUp = result{reason: reasonTooMany, message: messageGivenUp}

// served reports whether a pool that serves covers an address and selects a Service.
func (a *allocator) served(s *service, addr netip.Addr) bool {
	return slices.ContainsFunc(a.order, func(p *pool) bool { return p.serves() && p.covers(addr) && p.selects(s) })
}

// gives reports whether an address is one that a Service could be given, as far as pools go.
func (a *allocator) gives(s *service, addr netip.Addr) bool {
	return len(a.unknownServices) == 0 && slices.ContainsFunc(a.order, func(p *pool) bool {
		return p.serves() && p.covers(addr) && p.selects(s) && !p.addresses.IsReserved(addr)
	})
}

// blocked is the result of all allocations as long as the addresses of some Services are not known. It is not written.
func (a *allocator) blocked() result {
	return result{message: fmt.Sprintf("Service %s cannot be decoded, and may have any address", a.unknownServices[0])}
}
