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
	"time"

	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/seedtest"
	"github.com/skep-operator/skep/runtime/waittest"
)

// LBIP-22: ports collide where one is the same, of the same protocol, or of any where only numbers count.
func TestCollidingPorts(t *testing.T) {
	protocols := []slim.String{slim.MakeString("TCP"), slim.MakeString("UDP"), slim.MakeString("SCTP")}
	random := func(numbersOnly bool) sharing {
		s := sharing{numbersOnly: numbersOnly}
		for range rand.IntN(5) {
			s.ports = append(s.ports, servicePort{Port: rand.Int32N(6), Protocol: protocols[rand.IntN(len(protocols))]})
		}
		slices.SortFunc(s.ports, comparePorts)
		return s
	}
	for range 20_000 {
		numbersOnly := rand.IntN(2) == 0
		a, b := random(numbersOnly), random(numbersOnly)
		want := slices.ContainsFunc(a.ports, func(p servicePort) bool {
			return slices.ContainsFunc(b.ports, func(q servicePort) bool { return p.Port == q.Port && (numbersOnly || p.Protocol == q.Protocol) })
		})
		if got := a.collides(&b); (got != "") != want {
			t.Fatalf("%v and %v collide: %q, want %t", a.ports, b.ports, got, want)
		}
	}
}

// Number 3.4 of the contract's tenants.md is of the same kind: two Services with 40,000 ports each are compared in milliseconds, as the allocator
// waits for it.
func TestManyPortsAreCompared(t *testing.T) {
	var a, b sharing
	for n := range int32(40_000) {
		a.ports = append(a.ports, servicePort{Port: n, Protocol: slim.MakeString("TCP")})
		b.ports = append(b.ports, servicePort{Port: n, Protocol: slim.MakeString("UDP")})
	}
	last := servicePort{Port: 65535, Protocol: slim.MakeString("SCTP")}
	a.ports, b.ports = append(a.ports, last), append(b.ports, last)
	within(t, 100*time.Millisecond, func() {
		if got := a.collides(&b); got == "" {
			t.Error("they do not collide")
		}
	})
}

// LBIP-36; K3 of the contract's tenants.md: of texts that a hundred Services may have, of a quarter of a megabyte each, the allocator keeps little.
func TestTextsOfRequestsAreBounded(t *testing.T) {
	o := &serviceObject{}
	many := strings.Repeat("a,", 130_000)
	o.Annotations.Labels = slim.MakeLabels(map[string]string{requestAnnotation: strings.Repeat("\x1b", 1000) + many, sharingKeyAnnotation: "k", crossNamespaceAnnotation: many})
	for n := range int32(maxPorts) {
		o.Spec.Ports = append(o.Spec.Ports, servicePort{Port: n})
	}
	o.Trim()
	r := settings{ipv4: true}.parseRequest(o, nil)
	if n := len(r.invalid); n < maxInvalid || n > maxInvalid+8 || cap(r.sharing.permitted) > 2*maxPermitted || len(r.sharing.ports) != maxPorts {
		t.Errorf("%d bytes of an address, %d namespaces, %d ports", n, cap(r.sharing.permitted), len(r.sharing.ports))
	}
	o.Spec.Ports = append(o.Spec.Ports, servicePort{Port: maxPorts})
	o.Trim()
	if r := (settings{ipv4: true}).parseRequest(o, nil); r.sharing.key != "" || o.Spec.Ports != nil {
		t.Errorf("with more ports it shares by the key %q", r.sharing.key)
	}
}

// LBIP-20: a refusal names the oldest of those that an address cannot be shared with, among thousands of others, in less than a millisecond: as many
// may wait for it.
func TestRefusalsNameTheOldest(t *testing.T) {
	l := newLease(netip.MustParseAddr("10.0.0.1"))
	of := func(n int, port int32) *service {
		s := &service{key: slim.Key{Namespace: "ns", Name: fmt.Sprint(n)}, created: slim.Time(n)}
		s.request.sharing = sharing{key: "k", namespace: "ns", ports: []servicePort{{Port: port}}}
		return s
	}
	for n := range 2500 {
		l.users[of(n, int32(n/2))] = holds
	}
	by, _ := l.blocker(of(5000, 100))
	if by == nil || by.key.Name != "200" {
		t.Errorf("the oldest of those with port 100 is %v", by)
	}
	if by, _ := l.blocker(of(5000, 2000)); by != nil {
		t.Errorf("a free port is that of %v", by.key)
	}
	within(t, 50*time.Millisecond, func() {
		for range 100 {
			l.blocker(of(5000, 100))
		}
	})
}

// within fails a test in which something takes much longer than it may, as others wait for it.
func within(t *testing.T, most time.Duration, do func()) {
	t.Helper()
	if seedtest.RaceEnabled { // which is slower, and shares the machine with many others
		most *= 5
	}
	meter := waittest.StartMeter()
	do()
	took := meter.Elapsed()
	meter.Stop()
	if took > most {
		t.Errorf("it took %v, of %v", took, most)
	}
}
