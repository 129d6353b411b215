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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// ofTenant puts a Service into a namespace, at a time.
func ofTenant(namespace string, created int) func(*serviceObject) {
	return func(o *serviceObject) {
		o.Namespace, o.CreationTimestamp = slim.MakeString(namespace), slim.Time(created)
	}
}

// change edits a Service, whose status stays. The change is seen, and what follows from it is not written yet.
func (p *plan) change(namespace, name string, edits ...func(*serviceObject)) {
	o := *p.services[slim.Key{Namespace: namespace, Name: name}].object
	for _, e := range edits {
		e(&o)
	}
	p.revision++
	o.ResourceVersion = p.revision
	p.upsertService(&o)
}

// keeps are the addresses in the status of a Service that it is to keep.
func (p *plan) keeps(key slim.Key) []netip.Addr {
	s := p.services[key]
	return slices.DeleteFunc(slices.Clone(s.shown), func(addr netip.Addr) bool { return !slices.Contains(s.held, addr) })
}

// restarted is the plan of a process that finds the cluster as it is.
func (p *plan) restarted() *plan {
	again := newPlan(p.t)
	again.settings, again.revision = p.settings, p.revision
	for _, o := range p.order {
		again.upsertPool(o.object)
	}
	for _, s := range p.services {
		o := *s.object
		again.upsertService(&o)
	}
	again.markSynced()
	return again
}

// LBIP-37; K1 and K4 of the contract's tenants.md: of two Services of different namespaces that cannot share their address any more the older keeps it,
// whichever has changed, and each has an Event that names the other one. A restart decides in the same way.
func TestOlderServiceKeepsItsSharedAddress(t *testing.T) {
	const aa, bb = "aa", "bb"
	permitting := func(who string) func(*serviceObject) {
		return annotated(sharingKeyAnnotation, "k", crossNamespaceAnnotation, who)
	}
	for name, edits := range map[string]func(*serviceObject){
		"a port of the other":      withPorts(servicePort{Port: 80}, servicePort{Port: 81}),
		"the permission goes":      permitting(""),
		"another key":              annotated(sharingKeyAnnotation, "l", crossNamespaceAnnotation, "*"),
		"another traffic policy":   func(o *serviceObject) { o.Spec.ExternalTrafficPolicy = slim.MakeString("Local") },
		"no sharing, and no ports": func(o *serviceObject) { o.Annotations.Labels, o.Spec.Ports = slim.Labels{}, nil },
	} {
		for _, changes := range []string{aa, bb} {
			for _, created := range []int{10, 20} { // in one second aa is the older by its name
				t.Run(fmt.Sprintf("%s of %s, %d", name, changes, created), func(t *testing.T) {
					p := newPlan(t, newPool("p", 1, blocks("10.0.0.0/24")))
					p.sync()
					p.put(newService("a", ofTenant(aa, 10), permitting("*"), withPorts(servicePort{Port: 80})))
					p.put(newService("b", ofTenant(bb, created), permitting("*"), withPorts(servicePort{Port: 81})))
					a, b := p.services[slim.Key{Namespace: aa, Name: "a"}], p.services[slim.Key{Namespace: bb, Name: "b"}]
					if got := fmt.Sprint(a.held, b.held); got != "[10.0.0.0] [10.0.0.0]" {
						t.Fatalf("they share %s", got)
					}
					p.change(changes, changes[:1], edits)
					again := p.restarted()
					if got, want := fmt.Sprint(again.keeps(a.key), again.keeps(b.key)), "[10.0.0.0] []"; got != want {
						t.Errorf("after a restart they keep %s, want %s", got, want)
					}
					for _, all := range [][]contest{p.contested, again.contested} {
						if len(all) != 1 || all[0].loses.key != b.key || all[0].has.key != a.key || all[0].addr.String() != "10.0.0.0" {
							t.Errorf("Events: %v", all)
						}
					}
					p.storeWrites()
					if got := fmt.Sprint(a.held, b.held, a.shown, b.shown); got != "[10.0.0.0] [10.0.0.1] [10.0.0.0] [10.0.0.1]" {
						t.Errorf("they have and show %s", got)
					}
				})
			}
		}
	}
}

// LBIP-37: one that names the address waits for it, and its condition has the reason. What a third one of the namespace of the older has stays.
func TestLoserOfANamedAddressWaits(t *testing.T) {
	shares := annotated(sharingKeyAnnotation, "k", crossNamespaceAnnotation, "*")
	p := newPlan(t, newPool("p", 1, blocks("10.0.0.0/24")))
	p.sync()
	p.put(newService("a", ofTenant("aa", 10), shares, withPorts(servicePort{Port: 80})))
	p.put(newService("c", ofTenant("aa", 30), shares, withPorts(servicePort{Port: 82})))
	p.put(newService("b", ofTenant("bb", 20), shares, annotated(requestAnnotation, "10.0.0.0"), withPorts(servicePort{Port: 81})))
	p.change("aa", "a", withPorts(servicePort{Port: 80}, servicePort{Port: 81}))
	p.storeWrites()
	a, b, c := p.services[slim.Key{Namespace: "aa", Name: "a"}], p.services[slim.Key{Namespace: "bb", Name: "b"}], p.services[slim.Key{Namespace: "aa", Name: "c"}]
	if got := fmt.Sprintf("%v %v %v %s %s", a.shown, b.shown, c.shown, b.result.reason, b.result.has); got != "[10.0.0.0] [] [10.0.0.0] already_allocated_incompatible_service aa/a" {
		t.Errorf("they show, and why: %s", got)
	}
	p.change("aa", "a", withPorts(servicePort{Port: 80}))
	p.storeWrites()
	if got := fmt.Sprintf("%v %s", b.shown, b.result.reason); got != "[10.0.0.0] " {
		t.Errorf("when the port is free again it has %s", got)
	}
}

// LBIP-37: over any history of edits, of Services of different namespaces those keep an address which a restart lets keep it, and none loses one to a
// younger.
func TestSharersDecideAsARestartDoes(t *testing.T) {
	for seed := range seedtest.Seeds(t, 300) {
		r := rand.New(rand.NewPCG(seed, 7))
		p := newPlan(t, newPool("p", 1, blocks("10.0.0.0/24")))
		p.sync()
		random := func(o *serviceObject) {
			permitted := []string{"*", "*", "*", "*", "*", "n0,n1,n2", "n3", ""}[r.IntN(8)]
			annotated(sharingKeyAnnotation, []string{"k", "k", "k", "l"}[r.IntN(4)], crossNamespaceAnnotation, permitted)(o)
			o.Spec.Ports = []servicePort{{Port: int32(r.IntN(8))}, {Port: int32(8 + r.IntN(8))}}
		}
		var namespaces []string
		for i := range 6 {
			namespaces = append(namespaces, fmt.Sprint("n", i))
			p.put(newService("s", ofTenant(namespaces[i], r.IntN(4)), random))
		}
		for range 20 {
			before := map[slim.Key][]netip.Addr{}
			for key, s := range p.services {
				before[key] = slices.Clone(s.shown)
			}
			p.contested = nil
			p.change(namespaces[r.IntN(len(namespaces))], "s", random)
			again := p.restarted()
			lost := map[slim.Key]bool{}
			for _, c := range p.contested {
				lost[c.loses.key] = true
				if oldestFirst(c.has, c.loses) >= 0 {
					t.Fatalf("SKEP_SEED=%d: %s loses %s to %s, which is younger", seed, c.loses.key, c.addr, c.has.key)
				}
			}
			for key := range p.services {
				if now, then := p.keeps(key), again.keeps(key); !slices.Equal(now, then) {
					t.Fatalf("SKEP_SEED=%d: of %v, %s keeps %v, and %v after a restart", seed, before[key], key, now, then)
				}
				if (len(p.keeps(key)) < len(before[key])) != lost[key] {
					t.Fatalf("SKEP_SEED=%d: of %v, %s keeps %v, and has an Event about that: %t", seed, before[key], key, p.keeps(key), lost[key])
				}
			}
			p.storeWrites()
		}
	}
}

// LBIP-15 and LBIP-37: what Services of two namespaces share at a start, by agents that distinguish protocols, stays where agents do not; a port of one
// number and protocol is the older one's.
func TestSharesOfNamespacesAtTheStart(t *testing.T) {
	shares := annotated(sharingKeyAnnotation, "k", crossNamespaceAnnotation, "*")
	for _, test := range []struct {
		namespace string
		port      servicePort
		want      string
	}{{"bb", dnsUDP, "[10.0.0.7]"}, {"bb", dnsTCP, "[]"}, {"aa", dnsTCP, "[10.0.0.7]"}} {
		p := newPlan(t, newPool("p", 1, blocks("10.0.0.0/24")))
		p.settings.numbersOnly = true
		p.put(newService("a", ofTenant("aa", 10), shares, withPorts(dnsTCP), showing("10.0.0.7")), newService("b", ofTenant(test.namespace, 20), shares, withPorts(test.port), showing("10.0.0.7")))
		p.markSynced()
		a, b := p.keeps(slim.Key{Namespace: "aa", Name: "a"}), p.keeps(slim.Key{Namespace: test.namespace, Name: "b"})
		if got := fmt.Sprint(b); len(a) != 1 || got != test.want {
			t.Errorf("%s, %v: the older keeps %v, the younger %s, want %s", test.namespace, test.port, a, got, test.want)
		}
	}
}

// LBIP-38; K4 of the contract's tenants.md: what Services show that options exclude is given to no other, and nothing is written to them.
func TestExcludedServicesKeepTheirAddresses(t *testing.T) {
	start := func(classes []string, all ...*serviceObject) *plan {
		p := newPlan(t, newPool("p", 1, blocks("10.0.0.0-10.0.0.1")))
		p.settings.classes = classes
		p.put(all...)
		p.sync()
		return p
	}
	ofClass := func(o *serviceObject) { o.Spec.LoadBalancerClass = slim.MakeString(classBGP) }
	for name, test := range map[string]struct {
		classes          []string
		excluded, served func(*serviceObject)
	}{"those without a class": {[]string{classBGP}, annotated(), ofClass}, "those of a class": {[]string{""}, ofClass, annotated()}} {
		t.Run(name, func(t *testing.T) {
			byHand := newService("by-hand", test.excluded, showing("10.0.0.1"))
			byHand.Status.Conditions = nil // another controller's
			p := start(test.classes, newService("a", test.excluded, showing("10.0.0.0")), byHand)
			p.put(newService("b", test.served))
			p.want("b", "10.0.0.1")
			p.put(newService("c", test.served, annotated(requestAnnotation, "10.0.0.0")))
			p.want("c", "already_allocated")
			if has := p.services[slim.Key{Namespace: "ns", Name: "c"}].result.has.Name; has != "a" {
				t.Errorf("it is named %q", has)
			}
			p.put(newService("a", test.excluded, showing("10.0.0.0"), annotated("other", "x"))) // an edit
			p.want("c", "already_allocated")
			if slices.Contains(p.writes, "a") || slices.Contains(p.writes, "by-hand") || p.matching() != 2 {
				t.Errorf("it wrote %q, and counts %d Services", p.writes, p.matching())
			}
			later := newService("later", test.excluded, showing("10.0.0.0")) // its status can be written by others
			p.put(later)
			p.put(newService("a", test.excluded))
			p.want("c", "10.0.0.0")
			if p.matching() != 2 || len(p.services) != 2 || len(p.excluded) != 0 {
				t.Errorf("%d Services are known, and %d are excluded", len(p.services), len(p.excluded))
			}
		})
	}
	for name, end := range map[string]func(p *plan){
		"it is deleted": func(p *plan) { p.removeService(slim.Key{Namespace: "ns", Name: "a"}); p.storeWrites() },
		"another type": func(p *plan) {
			p.put(newService("a", showing("10.0.0.0"), func(o *serviceObject) { o.Spec.Type = slim.MakeString("ClusterIP") }))
		},
	} {
		p := start([]string{classBGP}, newService("a", showing("10.0.0.0")))
		p.put(newService("c", ofClass, annotated(requestAnnotation, "10.0.0.0")))
		p.want("c", "already_allocated")
		end(p)
		p.want("c", "10.0.0.0")
		if len(p.services) != 1 || len(p.excluded) != 0 {
			t.Errorf("%s: %d Services are known, and %d are excluded", name, len(p.services), len(p.excluded))
		}
	}
	served := start([]string{""}, newService("a", showing("10.0.0.0")))
	if served.want("a", "10.0.0.0"); len(served.writes) > 0 {
		t.Errorf("when it is served again: %q", served.writes)
	}
}

// LBIP-37, on a server: the Events, and the statuses.
func TestServerOlderSharer(t *testing.T) {
	s := newServer(t)
	other := s.namespace + "-2"
	if _, err := s.core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.pool("blue", cidrs("10.0.10.0/24"))
	o := s.start()
	shares := []edit{annotate(sharingKeyAnnotation, "k"), annotate(crossNamespaceAnnotation, "*")}
	s.service("old", append(shares, port(80))...)
	s.want("old", "10.0.10.0")
	s.service("young", append(shares, port(81, 82), in(other))...)
	s.want(other+"/young", "10.0.10.0")
	s.editService("old", port(80, 81))
	s.want(other+"/young", "10.0.10.1")
	s.want("old", "10.0.10.0")
	operatortest.Eventually(t, "each has an Event", func() bool {
		list, err := s.core.CoreV1().Events(other).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=young,reason=AddressOfAnother"})
		kept := s.events("old", "AddressContested")
		return err == nil && len(list.Items) == 1 && strings.Contains(list.Items[0].Message, s.namespace+"/old") && len(kept) == 1 && strings.Contains(kept[0], other+"/young")
	})
	s.env.CheckHealthy(o)
}

// K5 of the contract's tenants.md: a change of a Service that fifty others share an address with has an Event on each of these, and five on it.
func TestFewClaims(t *testing.T) {
	shares := annotated(sharingKeyAnnotation, "k", crossNamespaceAnnotation, "*")
	p := newPlan(t, newPool("p", 1, blocks("10.0.0.0/24")))
	p.sync()
	p.put(newService("a", ofTenant("aa", 10), shares, withPorts(servicePort{Port: 80})))
	for i := range 50 {
		p.put(newService(fmt.Sprint("b", i), ofTenant("bb", 20), shares, withPorts(servicePort{Port: int32(1000 + i)})))
	}
	p.change("aa", "a", annotated(sharingKeyAnnotation, "l"))
	events := map[string]int{}
	for _, w := range warningsOf(p.contested) {
		events[w.reason]++
		if (w.reason == "AddressContested") != (w.about.Name == "a") {
			t.Errorf("%s has an Event %s", w.about.Name, w.reason)
		}
	}
	if got := fmt.Sprint(events); got != "map[AddressContested:5 AddressOfAnother:50]" {
		t.Error(got)
	}
}

// LBIP-32, on a server; number 4.1 of the contract's tenants.md: a Service that names more addresses than it may have gets the first ones, with a condition and
// one Event. Another Service gets its own, one that the first one has named.
func TestServerTooManyRequests(t *testing.T) {
	s := newServer(t)
	s.pool("blue", cidrs("10.0.10.0/29"))
	var all []string
	for n := range 256 {
		all = append(all, fmt.Sprintf("10.0.10.%d", n))
	}
	s.service("many", annotate(requestAnnotation, strings.Join(all, ",")))
	o := s.start()
	const found = "The service asks for 252 IPs more than the 4 of a family that it may have"
	s.wantFinding("many", "too_many_ips "+found, all[:4]...)
	s.service("one")
	s.want("one", "10.0.10.4")
	s.service("named", annotate(requestAnnotation, "10.0.10.6"))
	s.want("named", "10.0.10.6")
	s.editService("many", label("team", "net"))
	operatortest.Eventually(t, "it has an Event", func() bool { return len(s.events("many", "TooManyIPs")) > 0 })
	o.Stop()
	o = s.start()
	s.service("last", annotate(requestAnnotation, "10.0.10.7"))
	s.want("last", "10.0.10.7")
	s.wantFinding("many", "too_many_ips "+found, all[:4]...)
	if events := s.events("many", "TooManyIPs"); !slices.Equal(events, []string{found}) {
		t.Errorf("it has the Events %q", events)
	}
	s.env.CheckHealthy(o)
	o.Stop()
	s.start("--lbipam-max-requested-ips=2") // what it shows stays
	s.wantFinding("many", "too_many_ips The service asks for 252 IPs more than the 2 of a family that it may have", all[:4]...)
}
