// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lbipam

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/stream/slim"
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
	begin := time.Now()
	if got := a.collides(&b); got == "" {
		t.Error("they do not collide")
	}
	if took := time.Since(begin); took > 100*time.Millisecond {
		t.Errorf("it took %v", took)
	}
}
