// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretref

import "testing"

// SEC-14: an object with copies of two names goes on with the one that configurations have, in either order, and else with the plain one.
func TestObjectsWithTwoCopies(t *testing.T) {
	of := object("team", "tls")
	plain, hidden := of.CopyName(), hiddenName(of, 0)
	for _, order := range [][]string{{plain, hidden}, {hidden, plain}} {
		for _, named := range []string{"", plain, hidden} {
			n, want := NewNames(), plain
			if named != "" {
				n.Pin("copies", named, "other")
				want = named
			}
			for _, name := range order {
				n.Exists("copies", name, of)
			}
			n.MarkKnown()
			if got := n.Of("copies", of); got != want {
				t.Errorf("%v, of which configurations have %q: it goes on with %s", order, named, got)
			}
		}
	}
}
