// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

import (
	"strings"
	"testing"
)

// Lengths on both sides of those at which the length itself takes a byte more.
func TestPackedParts(t *testing.T) {
	var parts []string
	var packed []byte
	for _, n := range []int{0, 1, 127, 0, 128, 16383, 16384, 3} {
		parts = append(parts, strings.Repeat("x", n))
		packed = appendPart(packed, parts[len(parts)-1])
	}
	rest := string(packed)
	for i, want := range parts {
		var got string
		if got, rest = nextPart(rest); got != want {
			t.Fatalf("part %d has %d bytes, want %d", i, len(got), len(want))
		}
	}
	if rest != "" {
		t.Errorf("%d bytes are left", len(rest))
	}
}
