// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package derivative

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/resources/networkpolicy"
)

// DERIV-27, K3 of the contract's tenants.md: however many groups there are that lead to all that a cloud has, of any number of policies, the addresses that are kept are bounded.
func TestLookupsAreBounded(t *testing.T) {
	c := newCloud()
	for i := range 256 {
		name := fmt.Sprint("all-", i)
		for n := range uint32(30_000) {
			c.members[name] = append(c.members[name], netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}).String())
		}
		if i > 0 {
			c.members[name] = c.members["all-0"]
		}
	}
	l := newLookups([]networkpolicy.Provider{c}, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "x"}, []string{"provider", "outcome"}))
	of := func(i int) group { return group{"aws", fmt.Sprintf(`{"labels":{"group":"all-%d"}}`, i)} }
	var all []group
	for i := range 256 {
		all = append(all, of(i))
	}
	if _, err := l.all(t.Context(), 1, all); !errors.Is(err, networkpolicy.ErrTooManyAddresses) || len(c.asked) != 2 {
		t.Errorf("%d groups are looked up: %v", len(c.asked), err)
	}
	kept := func() (n int) {
		for _, r := range l.results {
			n += len(r.addresses)
		}
		return n
	}
	for i := range 256 {
		if found, err := l.all(t.Context(), 1, []group{of(i)}); err != nil || len(found[of(i)]) != 30_000 {
			t.Fatalf("group %d leads to %d addresses: %v", i, len(found[of(i)]), err)
		}
	}
	if n := kept(); n == 0 || n > maxKept || n != l.kept {
		t.Errorf("%d addresses are kept, and %d are counted", n, l.kept)
	}
	if _, err := l.all(t.Context(), 3, []group{of(7)}); err != nil || l.kept != kept() {
		t.Errorf("a new refresh keeps %d and counts %d: %v", kept(), l.kept, err)
	}
}

// DERIV-27: however many policies refer to a group of too many addresses, it is looked up once in a refresh; whether the provider or this finds that it has.
func TestGroupsOfTooManyAddressesAreRemembered(t *testing.T) {
	c := newCloud()
	for n := range uint32(maxAddresses + 1) {
		c.members["all"] = append(c.members["all"], netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}).String())
	}
	c.beyond["more"] = true
	l := newLookups([]networkpolicy.Provider{c}, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "x"}, []string{"provider", "outcome"}))
	for refresh := int64(1); refresh < 4; refresh++ {
		for _, name := range []string{"all", "more"} {
			g := group{"aws", fmt.Sprintf(`{"labels":{"group":%q}}`, name)}
			clear(c.asked)
			for range 5 {
				if found, err := l.all(t.Context(), refresh, []group{g}); found != nil || !errors.Is(err, networkpolicy.ErrTooManyAddresses) {
					t.Errorf("%s: %d groups are found: %v", name, len(found), err)
				}
			}
			if c.asked[name] != 1 {
				t.Errorf("%s is looked up %d times", name, c.asked[name])
			}
		}
	}
	c.members["all"] = c.members["all"][:maxAddresses]
	if _, err := l.all(t.Context(), 4, []group{{"aws", `{"labels":{"group":"all"}}`}}); err != nil || l.kept != maxAddresses {
		t.Errorf("with fewer addresses: %d are kept: %v", l.kept, err)
	}
}
