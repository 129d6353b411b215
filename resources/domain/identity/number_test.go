// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity_test

import (
	"testing"

	"github.com/skep-operator/skep/resources/domain/identity"
)

// The table of ranges in docs/wire/identity.md.
func TestRangeOf(t *testing.T) {
	for _, c := range []struct {
		maxConnected, clusterID uint32
		min, max                identity.Number
	}{
		{255, 0, 256, 65535},
		{255, 1, 65536, 131071},
		{255, 2, 131072, 196607},
		{255, 3, 196608, 262143},
		{255, 255, 16711680, 16777215},
		{511, 0, 256, 32767},
		{511, 1, 32768, 65535},
		{511, 2, 65536, 98303},
		{511, 511, 16744448, 16777215},
	} {
		r := identity.RangeOf(c.clusterID, c.maxConnected)
		if r != (identity.Range{Min: c.min, Max: c.max}) {
			t.Errorf("cluster %d of %d has %v, want %d to %d", c.clusterID, c.maxConnected, r, c.min, c.max)
		}
		if !r.Contains(c.min) || !r.Contains(c.max) || r.Contains(c.min-1) || r.Contains(c.max+1) {
			t.Errorf("%v does not contain its own numbers, and only them", r)
		}
	}
}

func TestParseNumber(t *testing.T) {
	for name, want := range map[string]identity.Number{
		"256": 256, "16777215": 16777215, "1": 1,
		"": 0, "0": 0, "foo": 0, "-1": 0, "+1": 0, "0256": 0, "1e3": 0, "16777216": 0, "99999999999999999999": 0,
	} {
		if got, ok := identity.ParseNumber(name); got != want || ok != (want != 0) {
			t.Errorf("%q is %d (%t), want %d", name, got, ok, want)
		}
		if want != 0 && want.String() != name {
			t.Errorf("%d is written %q", want, want)
		}
	}
}
