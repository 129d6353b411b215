// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lbipam

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/skep-operator/skep/resources/domain/alloc"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// service is a Service that gets its addresses here, or that did and still shows them.
type service struct {
	key     slim.Key
	uid     slim.UID
	created slim.Time
	object  *serviceObject // as last observed
	ours    bool
	request request
	// wasUnknown says that it could not be decoded at first: others could have made its status no more than at the start.
	wasUnknown bool
	// sinceStart says that its ports are those that it had when the allocator began.
	sinceStart bool

	held     []netip.Addr // allocated, in this order
	uses     perFamily    // how many addresses it uses, in whatever way
	atStart  perFamily    // how many of them it had when the allocator began, as far as they are left
	shown    []netip.Addr // of the observed status
	sent     sending
	result   result
	waitsFor waitsFor
	// given are addresses that were allocated to it, or that it showed, when it became another's, to be removed from its status.
	given []netip.Addr
}

// sending are the addresses in writes that are not observed yet. They can be stored as long as the Service has this
// revision.
type sending struct {
	revision slim.Revision
	addrs    []netip.Addr
	at       time.Time // when the last one has failed
}

// result is why a Service does not have all that it wants, zero if it does.
type result struct {
	reason, message string
	has             slim.Key // the Service that has what it wants, zero if it is not one
}

func (s *service) labels() serviceLabels { return serviceLabels{s.object.Labels, s.key} }

// allocator allocates addresses. It is not safe for concurrent use.
//
// Before markSynced it only collects Services and pools: an address that a Service has must not be allocated to another
// because the first one is not in the cache yet.
type allocator struct {
	settings  settings
	pools     map[string]*pool
	order     []*pool // in which they are searched
	services  map[slim.Key]*service
	excluded  map[*service]bool // those of services that options exclude: what their statuses show since the start is not free (LBIP-38)
	addresses *alloc.Addresses[*lease]
	leases    leases
	waiting   waiting
	synced    bool

	// unknownPools are pools of which nothing can be decoded, unknownServices such Services.
	unknownPools, unknownServices []slim.Key
	wereUnknown                   map[slim.Key]bool // Services until they are seen, or gone
	unknownRanges                 bool              // the value of hasUnknownRanges after the last change of a pool

	released      []released     // to be offered to waiting Services
	starting      bool           // Services keep what they show
	leftFree      map[string]int // by namespace, addresses that excluded Services show beyond what counts (LBIP-40)
	contested     []contest      // to be reported
	dirtyPools    map[string]bool
	dirtyServices map[slim.Key]bool
}

func newAllocator(s settings) *allocator {
	return &allocator{
		settings: s, pools: map[string]*pool{}, services: map[slim.Key]*service{}, excluded: map[*service]bool{},
		addresses: alloc.NewAddresses[*lease](), leases: newLeases(), waiting: newWaiting(), leftFree: map[string]int{},
		wereUnknown: map[slim.Key]bool{}, dirtyPools: map[string]bool{}, dirtyServices: map[slim.Key]bool{},
	}
}

// markSynced imports what Services have, and then starts to allocate.
func (a *allocator) markSynced() {
	a.synced = true
	slices.SortFunc(a.order, func(a, b *pool) int { return strings.Compare(a.name, b.name) })
	a.markAllPools()
	for _, s := range a.services {
		s.sinceStart = true
	}
	a.boundShown()
	a.starting = true
	a.reconcile(slices.Collect(maps.Values(a.services)))
	a.starting = false
	for _, s := range slices.Collect(maps.Values(a.services)) {
		if !s.ours {
			a.release(s)
		}
	}
	a.retry()
}

// drainDirty returns the objects that may have to be written and forgets them. The maps are the caller's: changes of other
// goroutines go into others.
func (a *allocator) drainDirty() (services map[slim.Key]bool, pools map[string]bool) {
	services, pools = a.dirtyServices, a.dirtyPools
	a.dirtyServices, a.dirtyPools = map[slim.Key]bool{}, map[string]bool{}
	return services, pools
}

func (a *allocator) markAllPools() {
	for _, p := range a.order {
		a.dirtyPools[p.name] = true
	}
}

// setUnknown records the objects of which nothing can be decoded. Addresses in no known pool are kept as long as there are
// such pools, and no address is allocated as long as there are such Services.
func (a *allocator) setUnknown(pools, services []slim.Key) {
	pools = slices.DeleteFunc(slices.Clone(pools), func(key slim.Key) bool { return a.pools[key.Name] != nil })
	services = slices.DeleteFunc(slices.Clone(services), func(key slim.Key) bool { return a.services[key] != nil })
	fewerPools := len(pools) < len(a.unknownPools)
	fewerServices := len(services) < len(a.unknownServices)
	for _, key := range a.unknownServices {
		a.wereUnknown[key] = true
	}
	for _, key := range services {
		delete(a.wereUnknown, key)
	}
	a.unknownPools, a.unknownServices = pools, services
	a.unknownRanges = a.hasUnknownRanges()
	switch {
	case !a.synced:
	case fewerPools:
		a.reconcile(slices.Collect(maps.Values(a.services)))
	case fewerServices:
		a.reconcile(a.waiting.all())
	}
	if fewerServices {
		a.markAllPools()
	}
	if a.synced {
		a.retry()
	}
}

// upsertService records the state of a Service and allocates what it misses.
func (a *allocator) upsertService(o *serviceObject) {
	key := o.Key()
	s := a.services[key]
	if s != nil && s.uid != o.UID {
		a.removeService(key)
		s = nil
	}
	ours := a.settings.serves(o)
	wasUnknown := a.wereUnknown[key] || slices.Contains(a.unknownServices, key)
	delete(a.wereUnknown, key)
	if s == nil {
		excluded := !ours && !a.synced && isExcluded(o)
		if !ours && !excluded && !isLeftOver(o) {
			return
		}
		s = &service{key: key, uid: o.UID, created: o.CreationTimestamp, wasUnknown: wasUnknown}
		a.services[key] = s
		switch {
		case excluded:
			a.excluded[s] = true
		case !ours:
			s.given = shownAddrs(o)
		}
	}
	a.observe(s, o, ours)
	if !a.synced {
		return
	}
	if !s.ours {
		a.release(s)
	} else {
		a.reconcile([]*service{s})
	}
	a.retry()
}

// isLeftOver reports whether a Service got its addresses here, and is of no type that has any. No other controller cleans it.
func isLeftOver(o *serviceObject) bool {
	return !o.isLoadBalancer() && slices.ContainsFunc(o.Status.Conditions, isSatisfied)
}

// isExcluded reports whether a LoadBalancer Service that gets no addresses here got those which it shows here, with other options. Nothing is written
// to it. It is asked at the start alone: later, any writer may have made that status.
func isExcluded(o *serviceObject) bool {
	return o.isLoadBalancer() && slices.ContainsFunc(o.Status.Conditions, isSatisfied)
}

func (o *serviceObject) isLoadBalancer() bool { return o.Spec.Type.String() == typeLoadBalancer }

// matching is how many Services get their addresses here, or did.
func (a *allocator) matching() int { return len(a.services) - len(a.excluded) }

// observe takes over the observed state of a Service.
func (a *allocator) observe(s *service, o *serviceObject, ours bool) {
	has := s.held
	if !a.synced {
		has = shownAddrs(o)
	}
	request := a.settings.parseRequest(o, has)
	if was := s.request.sharing; !was.equal(&request.sharing) {
		s.sinceStart = s.sinceStart && slices.Equal(was.ports, request.sharing.ports)
		for _, addr := range s.held {
			l := a.leases.byAddr[addr]
			a.leases.countKey(was.key, l, -1)
			a.leases.countKey(request.sharing.key, l, 1)
			a.released = append(a.released, released{addr, was.key})
		}
	}
	before := s.shown
	switch {
	case ours:
		s.given = nil
	case s.ours, a.excluded[s] && !o.isLoadBalancer(): // it has none yet of the controller whose it is now
		s.given = slices.Clone(before)
	}
	if ours || !o.isLoadBalancer() {
		delete(a.excluded, s)
	}
	s.object, s.ours, s.request = o, ours, request
	if s.shown = shownAddrs(o); a.excluded[s] && a.synced { // the bound of the start
		s.shown = slices.DeleteFunc(s.shown, func(addr netip.Addr) bool { return !slices.Contains(before, addr) })
	}
	for _, addr := range s.shown {
		if a.hasHad(s, addr) {
			a.use(s, addr, shows)
		}
	}
	for _, addr := range before {
		if !slices.Contains(s.shown, addr) {
			a.unuse(s, addr, shows)
		}
	}
	if o.ResourceVersion > s.sent.revision {
		a.forgetSent(s)
	}
	for f := range s.atStart {
		s.atStart[f] = min(s.atStart[f], s.uses[f])
	}
}

// hasHad reports whether a Service that shows an address may have it from an allocator: others do not get it before the status is seen without it. What
// a status has besides, another writer has put there, and it keeps nothing from others (LBIP-35).
func (a *allocator) hasHad(s *service, addr netip.Addr) bool {
	return !a.synced || a.isUsedBy(s, addr)
}

func shownAddrs(o *serviceObject) (addrs []netip.Addr) {
	for _, in := range o.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(in.IP); err == nil && !slices.Contains(addrs, a.Unmap()) {
			addrs = append(addrs, a.Unmap())
		}
	}
	return addrs
}

// markSent records that a status with these addresses is written to a Service if it has this revision. It does not, and is false, where the Service uses some
// of them no more: another one may have them by now.
func (a *allocator) markSent(s *service, revision slim.Revision, addrs []netip.Addr) bool {
	if slices.ContainsFunc(addrs, func(addr netip.Addr) bool { return !a.isUsedBy(s, addr) }) {
		return false
	}
	s.sent.revision = max(s.sent.revision, revision)
	for _, addr := range addrs {
		if !slices.Contains(s.sent.addrs, addr) {
			s.sent.addrs = append(s.sent.addrs, addr)
			a.use(s, addr, sent)
		}
	}
	return true
}

func (a *allocator) forgetSent(s *service) {
	for _, addr := range s.sent.addrs {
		a.unuse(s, addr, sent)
	}
	s.sent = sending{}
}

// forgetUnstored records that no write is stored that tests this revision of a Service, or an older one.
func (a *allocator) forgetUnstored(key slim.Key, revision slim.Revision) {
	if s := a.services[key]; s != nil && s.sent.revision == revision && s.object.ResourceVersion == revision {
		a.forgetSent(s)
		a.reconcile([]*service{s}) // it may get others now
		a.retry()
	}
}

// removeService removes a deleted Service. Its addresses are free at once.
func (a *allocator) removeService(key slim.Key) {
	delete(a.wereUnknown, key)
	s := a.services[key]
	if s == nil {
		return
	}
	delete(a.services, key)
	delete(a.excluded, s)
	a.waiting.remove(s)
	for _, addr := range slices.Clone(s.held) {
		a.unuse(s, addr, holds)
	}
	for _, addr := range s.shown {
		a.unuse(s, addr, shows)
	}
	a.forgetSent(s)
	if a.synced {
		a.retry()
	}
}

// release frees all addresses of a Service that is another's now. It is forgotten when its status shows none of them. One that options exclude is
// left as it is until then.
func (a *allocator) release(s *service) {
	if a.excluded[s] {
		if !slices.ContainsFunc(s.shown, func(addr netip.Addr) bool { return a.hasHad(s, addr) }) {
			a.removeService(s.key)
		}
		return
	}
	a.waiting.remove(s)
	s.given = slices.Concat(s.given, s.held, s.sent.addrs)
	for _, addr := range slices.Clone(s.held) {
		a.unuse(s, addr, holds)
	}
	a.mark(s)
	if !a.dirtyServices[s.key] && len(s.sent.addrs) == 0 {
		a.removeService(s.key)
	}
}

// upsertPool records the state of a pool. Services whose addresses it does not cover any more get others, and those that
// wait are retried.
func (a *allocator) upsertPool(o *poolObject) {
	p := a.pools[o.Name]
	if p != nil && sameSpec(p.object, o) {
		p.object = o
		a.dirtyPools[p.name] = true
		return
	}
	var affected []*service
	if p == nil {
		p = &pool{name: o.Name, addresses: a.addresses.NewPool()}
		a.pools[o.Name] = p
		a.order = append(a.order, p)
		p.set(o)
	} else {
		selector, ranges := p.selector, p.ranges
		p.set(o)
		if !sameSelector(selector, p.selector) {
			affected = a.holdersIn(ranges)
		} else {
			affected = a.holdersIn(without(ranges, p.ranges))
		}
	}
	a.poolsChanged(p.name, affected)
}

// removePool removes a deleted pool.
func (a *allocator) removePool(name string) {
	p := a.pools[name]
	if p == nil {
		return
	}
	affected := a.holdersIn(p.ranges)
	delete(a.pools, name)
	a.order = slices.DeleteFunc(a.order, func(o *pool) bool { return o == p })
	a.poolsChanged(name, affected)
}

// poolsChanged applies a change of a pool, with the Services that hold its addresses.
func (a *allocator) poolsChanged(name string, affected []*service) {
	a.dirtyPools[name] = true
	conflicts := findConflicts(a.order)
	for _, p := range a.order {
		if conflicts[p] != p.conflict {
			p.conflict = conflicts[p]
			a.dirtyPools[p.name] = true
		}
	}
	unknown := a.unknownRanges
	a.unknownRanges = a.hasUnknownRanges()
	switch {
	case !a.synced:
		return
	case unknown && !a.unknownRanges: // more than the pool may be affected
		affected = slices.Collect(maps.Values(a.services))
	}
	affected = slices.DeleteFunc(affected, a.allCovered)
	a.reconcile(append(affected, a.waiting.all()...))
	a.retry()
}

// holdersIn are the Services that hold addresses of these ranges.
func (a *allocator) holdersIn(ranges []alloc.AddressRange) (all []*service) {
	for _, r := range ranges {
		for _, l := range a.addresses.Within(r.IPRange) {
			all = append(all, l.holders()...)
		}
	}
	return all
}

// allCovered reports whether a Service may keep all that it holds.
func (a *allocator) allCovered(s *service) bool {
	return !slices.ContainsFunc(s.held, func(addr netip.Addr) bool { return !a.covered(s, addr) })
}

// covered reports whether some pool covers an address and may select the Service.
func (a *allocator) covered(s *service, addr netip.Addr) bool {
	known := false
	for _, p := range a.order {
		if p.covers(addr) {
			if known = true; p.maySelect(s) {
				return true
			}
		}
	}
	return !known && a.hasUnknownRanges()
}

// hasUnknownRanges reports whether there are pools some of whose blocks are not known.
func (a *allocator) hasUnknownRanges() bool {
	return len(a.unknownPools) > 0 || slices.ContainsFunc(a.order, func(p *pool) bool {
		return p.problem != nil && p.problem.reason == reasonInvalidBlock
	})
}

// dormant reports whether there are no pools.
func (a *allocator) dormant() bool { return len(a.pools) == 0 && len(a.unknownPools) == 0 }
