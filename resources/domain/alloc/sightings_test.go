// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package alloc_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/skep-operator/skep/resources/domain/alloc"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// Sightings say the same as a plain list of all of them.
func TestSightings(t *testing.T) {
	for seed := range seedtest.Seeds(t, 300) {
		r := rand.New(rand.NewPCG(seed, 21))
		s, plain := alloc.NewSightings[string](), map[string][]netip.Prefix{}
		cidr := func() netip.Prefix {
			if r.IntN(4) == 0 {
				return netip.MustParsePrefix(fmt.Sprintf("fd00::%x:0/%d", r.IntN(4), 108+r.IntN(6))).Masked()
			}
			return netip.MustParsePrefix(fmt.Sprintf("10.0.0.%d/%d", r.IntN(64), 24+r.IntN(8))).Masked()
		}
		for range 40 {
			owner := fmt.Sprint("n", r.IntN(5))
			var cidrs []netip.Prefix
			for range r.IntN(4) {
				cidrs = append(cidrs, cidr())
			}
			s.Set(owner, cidrs...)
			slices.SortFunc(cidrs, netip.Prefix.Compare)
			plain[owner] = slices.Compact(cidrs)
			if !slices.Equal(s.Of(owner), plain[owner]) {
				t.Fatalf("SKEP_SEED=%d: %s has %v, want %v", seed, owner, s.Of(owner), plain[owner])
			}
			asked := cidr()
			var got, want []string
			for c, owner := range s.Overlapping(asked) {
				got = append(got, fmt.Sprint(c, owner))
			}
			all := map[netip.Prefix]bool{}
			for owner, list := range plain {
				for _, c := range list {
					if all[c] = true; c.Overlaps(asked) {
						want = append(want, fmt.Sprint(c, owner))
					}
				}
			}
			slices.Sort(got)
			if slices.Sort(want); !slices.Equal(got, want) || s.Len() != len(all) {
				t.Fatalf("SKEP_SEED=%d: %s overlaps %v, want %v; %d CIDRs, want %d", seed, asked, got, want, s.Len(), len(all))
			}
		}
	}
}
