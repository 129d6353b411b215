// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lbipam

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/domain/alloc"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// countUses counts how many addresses of each family a Service uses.
func (p *plan) countUses(s *service) (n perFamily) {
	for addr, l := range p.leases.byAddr {
		if l.users[s] != 0 {
			n[alloc.FamilyOf(addr)]++
		}
	}
	return n
}

// showingAlone has a status show these addresses, and no others.
func showingAlone(ips ...string) func(*serviceObject) {
	return func(o *serviceObject) {
		o.Status.LoadBalancer.Ingress = nil
		showing(ips...)(o)
	}
}

// LBIP-35; number 4.1 of the contract's tenants.md: while nothing is written to a Service, or its owner is faster, it gives up addresses and has its status show them.
// They stay its own up to a bound, and in the end it has what it names.
func TestAddressesGivenUpAreBounded(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		p := fewPlan(t)
		p.sync()
		p.put(newService("a", annotated(requestAnnotation, strings.Join(many(0, 4), ","))))
		for i := 4; i < 252; i += 4 {
			p.change("ns", "a", annotated(requestAnnotation, strings.Join(many(i, 4), ",")))
			p.change("ns", "a", showingAlone(many(0, i+4)...))
			if restarts {
				p = p.restarted()
			}
			a := p.services[slim.Key{Namespace: "ns", Name: "a"}]
			if n, most := p.countUses(a)[alloc.IPv4], 2*p.settings.most; !restarts && n > most || n > 2*most+mostLeft {
				t.Fatalf("after %d edits %d addresses are its own", i/4, n)
			}
		}
		p.upsertService(newService("b", ofTenant("bb", 2), annotated(requestAnnotation, "10.0.0.200")))
		if b := p.services[slim.Key{Namespace: "bb", Name: "b"}]; len(b.held) != 1 {
			t.Errorf("another Service has %v: %s", b.held, b.result.message)
		}
		p.storeWrites()
		p.want("a", "10.0.0.248 10.0.0.249 10.0.0.250 10.0.0.251")
		if a := p.services[slim.Key{Namespace: "ns", Name: "a"}]; p.countUses(a) != (perFamily{4}) || a.atStart[alloc.IPv4] > 4 {
			t.Errorf("in the end %v are its own, and %v count from the start", p.countUses(a), a.atStart)
		}
	}
}

// LBIP-35: the first replacement is at once, also of more addresses than one may name now. Another one waits, with a condition, for the status to be without the first.
func TestReplacementsBeforeAWrite(t *testing.T) {
	const most = 4
	for _, had := range []int{1, most, 10} {
		p := fewPlan(t)
		p.put(newService("a", annotated(requestAnnotation, strings.Join(many(0, had), ",")), showing(many(0, had)...)))
		p.sync()
		p.change("ns", "a", annotated(requestAnnotation, strings.Join(many(20, most), ",")))
		p.want("a", "10.0.0.20 10.0.0.21 10.0.0.22 10.0.0.23")
		p.change("ns", "a", annotated(requestAnnotation, strings.Join(many(30, most), ","))) // nothing has shown the ones before
		p.want("a", "10.0.0.30 10.0.0.31 10.0.0.32 10.0.0.33")
		p.change("ns", "a", showing(many(30, most)...))
		p.change("ns", "a", annotated(requestAnnotation, strings.Join(many(40, most), ",")))
		if s := p.services[slim.Key{Namespace: "ns", Name: "a"}]; had >= most && (len(s.held) > 0 || s.result != givenUp) {
			t.Errorf("beside %d that it had, and 4, it has %v: %s", had, s.held, s.result.message)
		}
		p.change("ns", "a", annotated(requestAnnotation, "")) // any address: one of those
		if s := p.services[slim.Key{Namespace: "ns", Name: "a"}]; len(s.held) != 1 {
			t.Errorf("without names it has %v: %s", s.held, s.result.message)
		}
		p.change("ns", "a", annotated(requestAnnotation, strings.Join(many(40, most), ",")))
		p.storeWrites()
		p.want("a", "10.0.0.40 10.0.0.41 10.0.0.42 10.0.0.43")
	}
}

// LBIP-23, LBIP-35: what is in a write whose outcome is not known counts, and when it is known that none is stored the Service gets others without a
// change of its own. A write that is not wanted any more adds nothing.
func TestWritesUnderWayCount(t *testing.T) {
	p := fewPlan(t)
	p.sync()
	p.put(newService("a", annotated(requestAnnotation, strings.Join(many(0, 4), ","))))
	a := p.services[slim.Key{Namespace: "ns", Name: "a"}]
	at := func(from int) {
		p.upsertPool(next(p.pools["p"].object, blocks(fmt.Sprintf("10.0.0.%d-10.0.0.255", from))))
		p.markSent(a, a.object.ResourceVersion, a.held)
	}
	p.change("ns", "a", annotated(requestAnnotation, ""))
	for from := 1; from < 40; from++ { // the pool shrinks, and with each block it has another address
		at(from)
		if n := p.countUses(a)[alloc.IPv4]; n > 8 {
			t.Fatalf("%d addresses are its own", n)
		}
	}
	if a.result != givenUp || len(a.held) != 0 {
		t.Errorf("it has %v: %s", a.held, a.result.message)
	}
	stale := a.sent.addrs
	p.forgetUnstored(a.key, a.object.ResourceVersion)
	p.want("a", "10.0.0.39")
	p.upsertPool(next(p.pools["p"].object, blocks("10.0.0.0/24")))
	p.put(newService("b", annotated(requestAnnotation, "10.0.0.5")))
	p.want("b", "10.0.0.5")
	if p.markSent(a, a.object.ResourceVersion, stale) || len(a.sent.addrs) > 0 {
		t.Errorf("a write adds %v, which it has not any more", stale)
	}
	p.storeWrites()
	if n := p.countUses(a); n != (perFamily{1}) {
		t.Errorf("in the end %v are its own", n)
	}
}

// LBIP-23: a status that is read anew to be replaced, since another writer has undone the same write, gets no address that has become another's meanwhile.
func TestWriteThatIsNotWantedAnyMore(t *testing.T) {
	p := fewPlan(t)
	p.sync()
	c := &controller{alloc: p.allocator, written: map[slim.Key]written{}, poolsWritten: map[string]written{}}
	p.upsertService(newService("a", annotated(requestAnnotation, "10.0.0.7")))
	key := slim.Key{Namespace: "ns", Name: "a"}
	w, _, err := c.nextServiceWrite(key)
	if err != nil || !w.markSent(1) {
		t.Fatalf("a write that is wanted: %v", err)
	}
	p.revision += 2
	p.change("ns", "a", annotated(requestAnnotation, "10.0.0.8"))
	p.upsertService(newService("b", annotated(requestAnnotation, "10.0.0.7")))
	p.want("b", "10.0.0.7")
	if w.markSent(p.revision) {
		t.Error("the address of b is written to a")
	}
	p.removeService(key)
	if w.markSent(p.revision) {
		t.Error("a Service that is gone is written")
	}
}

// LBIP-40: what Services show at a start and may not keep is kept from others up to a bound, whatever their type, also where nothing can be written to them.
func TestGivenUpAtTheStartIsBounded(t *testing.T) {
	for name, edit := range map[string]func(*serviceObject){
		"names none":       annotated(),
		"names others":     annotated(requestAnnotation, "10.0.0.250,10.0.0.251"),
		"names none valid": annotated(requestAnnotation, "x"),
		"of another type":  func(o *serviceObject) { o.Spec.Type = slim.MakeString("ClusterIP") },
	} {
		p := fewPlan(t)
		for i := range 3 {
			p.put(newService(fmt.Sprint("s", i), edit, showing(many(80*i, 80)...)))
		}
		p.markSynced()
		own := 0
		for _, l := range p.leases.byAddr {
			own += min(1, len(l.users))
		}
		if most := 3*2*p.settings.most + mostLeft; own > most {
			t.Errorf("%s: %d addresses are theirs, of at most %d", name, own, most)
		}
	}
	p := fewPlan(t) // a predecessor has given it four others, and the status is not seen with these
	p.put(newService("a", annotated(requestAnnotation, strings.Join(many(4, 4), ",")), showing(many(0, 4)...)))
	p.markSynced()
	p.want("a", "10.0.0.4 10.0.0.5 10.0.0.6 10.0.0.7")
	p.upsertService(newService("b", annotated(requestAnnotation, "10.0.0.3")))
	p.want("b", "already_allocated")
	p.storeWrites()
	p.want("b", "10.0.0.3")
}

// LBIP-23, LBIP-32, LBIP-35: over any history of what the owner of a Service writes into its names, its type and its status, of writes that are paused, under way, or
// stored, and of restarts, the number of addresses that are kept from others for it is bounded. In the end it has what it names, and no more is kept.
func TestUsesAreBounded(t *testing.T) {
	waited := 0
	for seed := range seedtest.Seeds(t, 500) {
		r := rand.New(rand.NewPCG(seed, 19))
		p := fewPlan(t)
		p.sync()
		key := slim.Key{Namespace: "ns", Name: "a"}
		p.put(newService("a", annotated(requestAnnotation, strings.Join(randomNames(r), ","))))
		var ever []string // what it had at any time
		for range 60 {
			s := p.services[key]
			switch r.IntN(9) {
			case 0, 1, 2:
				p.change("ns", "a", annotated(requestAnnotation, strings.Join(randomNames(r), ",")))
			case 3, 4, 5:
				p.change("ns", "a", showingAlone(slices.Concat(ever, randomNames(r))...))
			case 6:
				if want, ok := p.desiredService(s); ok {
					p.markSent(s, s.object.ResourceVersion, want.addrs)
				}
			case 7:
				switch r.IntN(6) {
				case 0:
					p.forgetUnstored(key, s.object.ResourceVersion)
				case 1:
					p = p.restarted()
				case 2:
					p.storeWrites()
				case 3: // it is forgotten when it shows nothing
					p.change("ns", "a", func(o *serviceObject) { o.Spec.Type = slim.MakeString("ClusterIP") })
				}
			case 8:
				o := *s.object
				o.Spec.Type = slim.MakeString(typeLoadBalancer)
				p.revision++
				o.ResourceVersion = p.revision
				p.upsertService(&o)
			}
			if p.services[key] == nil {
				p.upsertService(s.object)
			}
			if s = p.services[key]; s == nil { // it is of another type, and shows nothing
				o := newService("a")
				p.revision++
				o.ResourceVersion = p.revision
				p.upsertService(o)
				s = p.services[key]
			}
			for _, addr := range s.held {
				ever = append(ever, addr.String())
			}
			if s.result == givenUp {
				waited++
			}
			uses := p.countUses(s)
			for f, n := range uses {
				most := p.settings.most + max(p.settings.most, s.atStart[f])
				if n != s.uses[f] || n > most || s.atStart[f] > 2*p.settings.most+mostLeft {
					t.Fatalf("SKEP_SEED=%d: it uses %d, counted %d, of at most %d, and %d since the start", seed, n, s.uses[f], most, s.atStart[f])
				}
			}
		}
		o := *p.services[key].object
		o.Spec.Type = slim.MakeString(typeLoadBalancer)
		annotated(requestAnnotation, "10.0.0.100,10.0.0.101,fd00::64")(&o)
		p.put(&o)
		s := p.services[key]
		slices.SortFunc(s.held, netip.Addr.Compare)
		slices.SortFunc(s.shown, netip.Addr.Compare)
		if got := fmt.Sprintf("%v %v %v %s", s.held, s.shown, p.countUses(s), s.result.message); got != "[10.0.0.100 10.0.0.101 fd00::64] [10.0.0.100 10.0.0.101 fd00::64] [2 1] " {
			t.Fatalf("SKEP_SEED=%d: in the end it has, shows, and uses %s", seed, got)
		}
	}
	if waited == 0 {
		t.Error("the histories leave out that it waits")
	}
}

// K4 of the contract's tenants.md; LBIP-6, LBIP-9, LBIP-11, LBIP-12, LBIP-31, LBIP-35: what any writer puts into a status since the start is no more than the Service could be given.
// What it had by then stays, and so does what a Service shows that could not be decoded at first.
func TestStatusesShowNoMoreThanPoolsGive(t *testing.T) {
	off, reserved, odd := blocks("10.0.1.0/24"), blocks("10.0.2.0/24"), blocks("10.0.3.0/24", "x")
	off.Disabled, reserved.AllowFirstLastIPs = true, slim.MakeString("No")
	pools := []*poolObject{
		newPool("first", 1, blocks("10.0.0.0/24")), newPool("off", 2, off), newPool("reserved", 3, reserved), newPool("odd", 4, odd),
		newPool("conflicting", 5, blocks("10.0.0.128-10.0.4.9")),
	}
	addrs := []string{"10.0.1.7", "10.0.2.0", "10.0.2.255", "10.0.4.5", "192.0.2.53"}
	for _, addr := range addrs {
		edit := annotated(requestAnnotation, addr)
		p := newPlan(t, pools...)
		p.sync()
		p.put(newService("bb", edit))
		p.put(newService("bb", edit, showing(addr)))
		if s := p.services[newService("bb").Key()]; len(s.held) > 0 {
			t.Errorf("%s: it is given what its status shows", addr)
		}
		if l := p.leases.byAddr[netip.MustParseAddr(addr)]; l != nil {
			t.Errorf("%s is not free", addr)
		}
		p = newPlan(t, pools...)
		p.put(newService("bb", edit, showing(addr)))
		p.sync()
		if s := p.services[newService("bb").Key()]; len(s.held) != 1 {
			t.Errorf("%s: it has lost what it had at the start", addr)
		}
		p = newPlan(t, pools...)
		unread := newService("bb", edit, showing(addr))
		p.setUnknown(nil, []slim.Key{unread.Key()})
		p.sync()
		p.setUnknown(nil, nil)
		p.put(unread)
		if s := p.services[unread.Key()]; len(s.held) != 1 || len(p.wereUnknown) > 0 {
			t.Errorf("%s: it has lost what it had while it could not be decoded", addr)
		}
	}
	p := newPlan(t, pools...)
	p.sync()
	p.setUnknown(nil, []slim.Key{{Namespace: "ns", Name: "unread"}})
	p.put(newService("bb", showing("10.0.0.9")))
	if s := p.services[newService("bb").Key()]; len(s.held) > 0 {
		t.Error("it is given what one that cannot be decoded may have")
	}
	p.setUnknown(nil, nil)
	if s := p.services[newService("bb").Key()]; len(s.held) != 1 {
		t.Errorf("it has %v when nothing is unknown any more", s.held)
	}
}
