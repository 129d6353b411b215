// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterpool

import (
	"errors"
	"slices"
	"testing"
)

// K8S-20: what a node lists that is set aside is given to no other node, and the others get theirs, also the one that lists nothing. When
// it is handled again it has what it listed.
func TestANodeThatIsSetAsideKeepsWhatItLists(t *testing.T) {
	const lists, nothing = `"spec":{"ipam":{"podCIDRs":["10.0.0.0/24"]}}`, `"spec":{}`
	why := errors.New("handling CiliumNode bad panicked")
	for name, synced := range map[string]bool{"at the start": false, "later": true} {
		t.Run(name, func(t *testing.T) {
			c, shared := v4(24, "10.0.0.0/22")
			a, err := newAllocator(c, shared)
			if err != nil {
				t.Fatal(err)
			}
			if synced {
				a.markSynced()
			}
			a.upsert(newSetAside(decoded(t, "bad", lists), why))
			a.upsert(newSetAside(decoded(t, "new", nothing), why))
			a.upsert(newObserved(decoded(t, "good", nothing)))
			if !synced {
				a.markSynced()
			}
			want := func(name string, cidrs ...string) {
				t.Helper()
				if d, _ := a.desired(name); !slices.Equal(d.PodCIDRs, cidrs) {
					t.Errorf("%s is to have %v, want %v", name, d, cidrs)
				}
			}
			want("good", "10.0.1.0/24")
			want("bad")
			want("new")
			if got := a.claims.problems(false)["bad"]; got != why.Error() {
				t.Errorf("the problem of the node is %q", got)
			}
			a.upsert(newObserved(decoded(t, "bad", lists)))
			a.upsert(newObserved(decoded(t, "new", nothing)))
			want("new", "10.0.2.0/24")
			if !a.upToDate("bad") || len(a.nodes["bad"].allocated) != 1 {
				t.Errorf("afterwards it has %v", a.nodes["bad"].allocated)
			}
		})
	}
}
