// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lbipam

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/domain/alloc"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// The first ranges that overlap are those that comparing each with each finds.
func TestOverlaps(t *testing.T) {
	r := rand.New(rand.NewPCG(seedtest.Seed(t), 1))
	some := func() (all []alloc.AddressRange) {
		for range r.IntN(8) {
			first := r.IntN(200)
			format := []string{"10.0.0.%d", "fd00::%x"}[r.IntN(2)]
			one, err := newRange(netip.MustParseAddr(fmt.Sprintf(format, first)), netip.MustParseAddr(fmt.Sprintf(format, first+r.IntN(30))))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, one)
		}
		return all
	}
	for range 5000 {
		own, older := &pool{name: "own", ranges: some()}, &pool{name: "older", ranges: some()}
		if got, want := own.overlap([]*pool{older}), slowOverlap(own, older); got != want {
			t.Fatalf("%v\n%v\n got %s\nwant %s", own.ranges, older.ranges, got, want)
		}
	}
}

func slowOverlap(p, older *pool) string {
	for i, own := range p.ranges {
		for _, other := range p.ranges[i+1:] {
			if own.Overlaps(other.IPRange) {
				return conflictMessage(own, other, p.name)
			}
		}
	}
	for _, own := range p.ranges {
		for _, other := range older.ranges {
			if own.Overlaps(other.IPRange) {
				return conflictMessage(own, other, older.name)
			}
		}
	}
	return ""
}

// K8S-23: as many blocks as an object holds are compared in less than a second.
func TestOverlapsOfManyBlocks(t *testing.T) {
	p := &pool{name: "many"}
	for i := range 50_000 {
		one, err := parseCIDR(fmt.Sprintf("10.%d.%d.0/24", i>>8, i&0xff))
		if err != nil {
			t.Fatal(err)
		}
		p.ranges = append(p.ranges, one)
	}
	began := time.Now()
	if text := p.overlap([]*pool{{name: "other"}}); text != "" {
		t.Error(text)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("it took %s", took)
	}
}
