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

// fewPlan is a plan of Services that may name four addresses of a family.
func fewPlan(t *testing.T) *plan {
	p := newPlan(t, newPool("p", 1, blocks("10.0.0.0/24", "fd00::/120")))
	p.settings.most = 4
	return p
}

// numberOf is how many of some addresses are of a family.
func numberOf(addrs []netip.Addr, f alloc.Family) (n int) {
	for _, addr := range addrs {
		if alloc.FamilyOf(addr) == f {
			n++
		}
	}
	return n
}

// LBIP-32; number 4.1 of the contract's tenants.md: however the names are turned, edit by edit, a Service has no more than it may name. It keeps what it has and names.
func TestRotatedRequests(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		for _, stored := range []bool{false, true} {
			p := fewPlan(t)
			p.sync()
			p.put(newService("a", annotated(requestAnnotation, strings.Join(many(0, 4), ","))))
			for i := 4; i < 256; i += 4 {
				names := slices.Concat(many(i, 4), many(0, i)) // the new ones first
				p.change("ns", "a", annotated(requestAnnotation, strings.Join(names, ",")))
				if stored {
					p.storeWrites()
				}
				if restarts {
					p = p.restarted()
				}
			}
			p.storeWrites()
			p.want("a", "10.0.0.0 10.0.0.1 10.0.0.2 10.0.0.3 too_many_ips")
		}
	}
}

// LBIP-32: who names others instead has these at once, and the status is written once. Of more names than it may have it gets others as soon as it
// has lost one that it had.
func TestReplacedRequests(t *testing.T) {
	p := fewPlan(t)
	p.sync()
	p.put(newService("a", annotated(requestAnnotation, strings.Join(many(0, 4), ","))))
	p.writes = nil
	p.change("ns", "a", annotated(requestAnnotation, strings.Join(many(10, 4), ",")))
	p.want("a", "10.0.0.10 10.0.0.11 10.0.0.12 10.0.0.13")
	p.storeWrites()
	if len(p.writes) != 1 {
		t.Errorf("it is written %d times", len(p.writes))
	}
	p.change("ns", "a", annotated(requestAnnotation, strings.Join(many(8, 6), ",")))
	p.want("a", "10.0.0.10 10.0.0.11 10.0.0.12 10.0.0.13 too_many_ips")
	p.change("ns", "a", annotated(requestAnnotation, strings.Join(many(8, 4), ",")))
	p.want("a", "10.0.0.10 10.0.0.11 10.0.0.8 10.0.0.9")
	p.change("ns", "a", annotated(requestAnnotation, strings.Join(many(8, 6), ",")))
	p.upsertPool(next(p.pools["p"].object, blocks("10.0.0.0-10.0.0.9", "10.0.0.12-10.0.0.255")))
	p.want("a", "10.0.0.8 10.0.0.9 no_pool") // 10 and 11 are the next of its names
	p.change("ns", "a", annotated(requestAnnotation, "10.0.0.8,10.0.0.9,10.0.0.12,10.0.0.13,10.0.0.14"))
	p.want("a", "10.0.0.8 10.0.0.9 10.0.0.12 10.0.0.13 too_many_ips")
	p.storeWrites()
	p.change("ns", "a", annotated(requestAnnotation, "10.0.0.3,10.0.0.4,10.0.0.8,10.0.0.9,10.0.0.12,10.0.0.13"))
	p.upsertPool(next(p.pools["p"].object, blocks("10.0.0.0-10.0.0.12")))
	p.want("a", "10.0.0.8 10.0.0.9 10.0.0.12 10.0.0.3 too_many_ips") // instead of 13, before anything is written
}

// LBIP-32, LBIP-40: what a start finds in no pool for a Service keeps none of its other names from it.
func TestNamesInNoPoolAtTheStart(t *testing.T) {
	outside := []string{"192.168.0.1", "192.168.0.2", "192.168.0.3", "192.168.0.4"}
	p := fewPlan(t)
	p.put(newService("a", annotated(requestAnnotation, strings.Join(slices.Concat(many(0, 4), outside), ",")), showing(outside...)))
	p.put(newService("older", ofTenant("aa", 1), showing("10.0.0.7")))
	p.put(newService("b", ofTenant("bb", 2), annotated(requestAnnotation, "10.0.0.5,10.0.0.6,10.0.0.7,10.0.0.8,10.0.0.9"), showing("10.0.0.7", "10.0.0.9")))
	p.sync()
	p.want("a", "10.0.0.0 10.0.0.1 10.0.0.2 10.0.0.3 too_many_ips")
	if b := p.services[slim.Key{Namespace: "bb", Name: "b"}]; fmt.Sprint(b.held) != "[10.0.0.9 10.0.0.5 10.0.0.6]" {
		t.Errorf("of what an older one has and shows, it has %v", b.held)
	}
	p = fewPlan(t)
	all := slices.Concat(outside, many(100, mostLeft+10))
	p.put(newService("a", annotated(requestAnnotation, strings.Join(all, ",")), showing(all...)))
	p.sync()
	if a := p.services[slim.Key{Namespace: "ns", Name: "a"}]; len(a.held) != p.settings.most+mostLeft {
		t.Errorf("it keeps %d of what it names beyond the bound", len(a.held))
	}
}

// LBIP-32, LBIP-35, LBIP-40: over any history of a Service's names, of writes that are stored sooner or later, of statuses written by hand, and of restarts, it
// has no more than it may name, or than it had at the start, which only gets fewer. In the end it has what it names within the bound, as far as it is free.
func TestNumberOfAddressesIsBounded(t *testing.T) {
	grandfathered, refused := 0, 0
	for seed := range seedtest.Seeds(t, 500) {
		r := rand.New(rand.NewPCG(seed, 17))
		p := fewPlan(t)
		for i := range 6 { // others have some
			p.put(newService(fmt.Sprint("other", i), ofTenant("aa", 1), showing(fmt.Sprint("10.0.0.", 5*i))))
		}
		names := func() string { return strings.Join(randomNames(r), ",") }
		a := newService("a", annotated(requestAnnotation, names()))
		bound := map[alloc.Family]int{alloc.IPv4: p.settings.most, alloc.IPv6: p.settings.most}
		if r.IntN(2) == 0 { // it names, and has, more since before the option
			shown := slices.Concat(many(30, 1+r.IntN(8)), []string{"fd00::1", "fd00::2", "fd00::3", "fd00::4", "fd00::5"}[:r.IntN(6)])
			annotated(requestAnnotation, strings.Join(append(slices.Clone(shown), names()), ","))(a)
			showing(shown...)(a)
			for f := range bound {
				bound[f] = max(bound[f], numberOf(shownAddrs(a), f))
			}
		}
		p.put(a)
		p.sync()
		check := func(what string) {
			s := p.services[a.Key()]
			for f, most := range bound {
				n := numberOf(s.held, f)
				if n > most {
					t.Fatalf("SKEP_SEED=%d: after %s it has %d of %v, %v, of at most %d", seed, what, n, f, s.held, most)
				}
				if most > p.settings.most {
					grandfathered++
				}
			}
		}
		check("the start")
		for range 30 {
			switch r.IntN(8) {
			case 0, 1, 2, 3:
				p.change("ns", "a", annotated(requestAnnotation, names()))
				check("an edit")
			case 4, 5:
				p.storeWrites()
				check("a write")
				for f, most := range bound {
					bound[f] = max(p.settings.most, min(most, numberOf(p.services[a.Key()].held, f)))
				}
			case 6:
				p = p.restarted()
				check("a restart")
			case 7:
				was := p.services[a.Key()].object.Status
				p.change("ns", "a", showing(randomNames(r)...))
				check("a status that others have written")
				p.change("ns", "a", func(o *serviceObject) { o.Status = was }) // a start would believe it
				check("the status as it was")
			}
		}
		p.change("ns", "a", annotated(requestAnnotation, names()))
		p.storeWrites()
		check("the end")
		s := p.services[a.Key()]
		var all []netip.Addr
		for _, addr := range requested(s.object) {
			if addr.IsValid() && !slices.Contains(all, addr) {
				all = append(all, addr)
			}
		}
		for f := range bound {
			if got, want := numberOf(s.request.ips, f), min(p.settings.most, numberOf(all, f)); got != want {
				t.Fatalf("SKEP_SEED=%d: of %v, it asks for %v", seed, all, s.request.ips)
			}
		}
		for _, addr := range s.request.ips {
			if l := p.leases.byAddr[addr]; !slices.Contains(s.held, addr) && p.isOfPool(addr) && (l == nil || len(l.users) == 0 || l.users[s] != 0) {
				t.Fatalf("SKEP_SEED=%d: it names %s, which is free, and has %v", seed, addr, s.held)
			} else if !slices.Contains(s.held, addr) {
				refused++
			}
		}
		for _, addr := range s.held {
			if len(s.request.ips) > 0 && !slices.Contains(all, addr) {
				t.Fatalf("SKEP_SEED=%d: it has %s, and names %v", seed, addr, all)
			}
		}
	}
	if grandfathered == 0 || refused == 0 {
		t.Errorf("the histories leave something out: %d, %d", grandfathered, refused)
	}
}

// randomNames are addresses, some of them in no pool, some twice, and texts that are none.
func randomNames(r *rand.Rand) (all []string) {
	for range 1 + r.IntN(14) {
		switch n := r.IntN(16); {
		case n < 9:
			all = append(all, fmt.Sprint("10.0.0.", r.IntN(40)))
		case n < 12:
			all = append(all, fmt.Sprintf("fd00::%x", r.IntN(12)))
		case n == 12:
			all = append(all, fmt.Sprint("::ffff:10.0.0.", r.IntN(40)))
		case n == 13:
			all = append(all, "192.168.0.1")
		default:
			all = append(all, []string{"x", "", "0.0.0.0", "fe80::1%eth0"}[r.IntN(4)])
		}
	}
	return all
}
