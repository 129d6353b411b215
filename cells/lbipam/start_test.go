// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lbipam

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// many are so many addresses from one on.
func many(from, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("10.0.0.%d", from+i))
	}
	return all
}

// LBIP-38, LBIP-40; K4 of the contract's tenants.md: what one namespace writes into the statuses of its Services leaves addresses to others after a start,
// whatever kind of Service shows them, and however many.
func TestStatusesOfANamespaceAreBounded(t *testing.T) {
	const most = 4
	ofClass := func(o *serviceObject) { o.Spec.LoadBalancerClass = slim.MakeString("example.com/x") }
	for name, test := range map[string]struct {
		edit func(shown []string) func(*serviceObject)
		want int // addresses that count, of four Services
	}{
		"of another class": {func([]string) func(*serviceObject) { return ofClass }, 4 * most},
		"names them": {func(shown []string) func(*serviceObject) {
			return annotated(requestAnnotation, strings.Join(shown, ","))
		}, 4*most + mostLeft},
		"names none that is": {func([]string) func(*serviceObject) { return annotated(requestAnnotation, "x") }, 4 + mostLeft},
		"names none":         {func([]string) func(*serviceObject) { return annotated() }, 4},
		"of a class and named": {func(shown []string) func(*serviceObject) {
			return func(o *serviceObject) { ofClass(o); annotated(requestAnnotation, strings.Join(shown, ","))(o) }
		}, 4 * most},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlan(t, newPool("p", 1, blocks("10.0.0.0/24")))
			p.settings.most = most
			for i := range 4 {
				shown := many(64*i, 64)
				p.put(newService(fmt.Sprint("s", i), ofTenant("bb", 20), showing(shown...), test.edit(shown)))
			}
			p.put(newService("a", ofTenant("aa", 30), showing("10.0.0.255"))) // in use, and younger
			p.sync()
			if has := p.keeps(slim.Key{Namespace: "aa", Name: "a"}); fmt.Sprint(has) != "[10.0.0.255]" {
				t.Errorf("an address that is in use is not kept: %v", has)
			}
			used := 0
			for _, l := range p.leases.byAddr {
				for s := range l.users {
					if s.key.Namespace == "bb" {
						used++
						break
					}
				}
			}
			if used != test.want {
				t.Errorf("%d addresses are kept from others, want %d", used, test.want)
			}
			for i := range 20 {
				p.put(newService(fmt.Sprint("new", i), ofTenant("cc", 40)))
				if s := p.services[slim.Key{Namespace: "cc", Name: fmt.Sprint("new", i)}]; len(s.held) != 1 {
					t.Fatalf("a Service of another namespace gets %v: %s", s.held, s.result.message)
				}
			}
		})
	}
}

// LBIP-40: of excluded Services as many count as an option allows for each, the oldest first, until the namespace has its number. Those are named by who asks
// for their addresses, others are free, and what another namespace shows does not count for it.
func TestOldestExcludedServicesCount(t *testing.T) {
	ofClass := func(o *serviceObject) { o.Spec.LoadBalancerClass = slim.MakeString(classBGP) }
	p := newPlan(t, newPool("p", 1, blocks("10.0.0.0/24")))
	p.settings.most = 1
	for i := range mostLeft + 20 { // the last are the oldest
		p.put(newService(fmt.Sprint("s", i), ofTenant("bb", 100-i), ofClass, showing(fmt.Sprintf("10.0.0.%d", i), fmt.Sprintf("10.0.0.%d", i+100))))
	}
	p.put(newService("other", ofTenant("aa", 200), ofClass, showing("10.0.0.250", "192.168.0.1")))
	p.put(newService("outside", ofTenant("aa", 201), ofClass, showing("192.168.0.2")))
	p.sync()
	if len(p.excluded) != mostLeft+2 || p.leftFree["bb"] != 2*(mostLeft+20)-mostLeft || p.leftFree["aa"] != 0 {
		t.Errorf("%d Services are excluded, and left free is %v", len(p.excluded), p.leftFree)
	}
	for i, want := range map[int]string{0: "[10.0.0.0]", 19: "[10.0.0.19]", 20: "[]", 83: "[]", 150: "[10.0.0.150]", 250: "[]"} {
		name := fmt.Sprint("asks", i)
		p.put(newService(name, ofTenant("cc", 300), annotated(requestAnnotation, fmt.Sprintf("10.0.0.%d", i))))
		if got := fmt.Sprint(p.services[slim.Key{Namespace: "cc", Name: name}].held); got != want {
			t.Errorf("who asks for %d has %s, want %s", i, got, want)
		}
	}
	o := *p.services[slim.Key{Namespace: "bb", Name: "s83"}].object // an edit of what counts: nothing more does
	o.Status.LoadBalancer.Ingress = append(slices.Clone(o.Status.LoadBalancer.Ingress), ingress{IP: "10.0.0.200"})
	p.put(&o)
	p.put(newService("asks200", ofTenant("cc", 300), annotated(requestAnnotation, "10.0.0.200")))
	if got := fmt.Sprint(p.services[slim.Key{Namespace: "cc", Name: "asks200"}].held); got != "[10.0.0.200]" {
		t.Errorf("what is put there later is kept from others: %s", got)
	}
}

// LBIP-13, LBIP-40: over any set of ordinary Services, those that show what they may have, a start gives none of their addresses to others, whatever the
// Services of another namespace show that they may not have.
func TestOrdinaryServicesKeepTheirAddresses(t *testing.T) {
	for seed := range seedtest.Seeds(t, 200) {
		r := rand.New(rand.NewPCG(seed, 11))
		p := newPlan(t, newPool("p", 1, blocks("10.0.0.0/24")))
		p.settings.most = 4
		shown := map[string]string{}
		for i := range 60 {
			name, ips := fmt.Sprint("a", i), many(100+2*i, 1+r.IntN(2))
			edits := []func(*serviceObject){ofTenant("aa", 10+r.IntN(10)), showing(ips...)}
			if len(ips) > 1 || r.IntN(2) == 0 {
				edits = append(edits, annotated(requestAnnotation, strings.Join(ips, ",")))
			}
			shown[name] = fmt.Sprint(ips)
			if 100+2*i < 255 {
				p.put(newService(name, edits...))
			} else {
				delete(shown, name)
			}
		}
		for i := range r.IntN(8) {
			ips := many(r.IntN(100), 1+r.IntN(100))
			p.put(newService(fmt.Sprint("b", i), ofTenant("bb", 30), showing(ips...), annotated(requestAnnotation, []string{"", "x", strings.Join(ips, ",")}[r.IntN(3)]),
				func(o *serviceObject) {
					o.Spec.LoadBalancerClass = slim.MakeString([]string{"", "example.com/x"}[r.IntN(2)])
				}))
		}
		p.put(newService("new", ofTenant("aa", 1))) // the oldest, without an address
		p.sync()
		for name, want := range shown {
			if got := fmt.Sprint(p.keeps(slim.Key{Namespace: "aa", Name: name})); got != want {
				t.Fatalf("SKEP_SEED=%d: %s showed %s, and keeps %s", seed, name, want, got)
			}
		}
	}
}
