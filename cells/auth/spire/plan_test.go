// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"testing"

	"github.com/skep-operator/skep/resources/domain/identity"
)

// SPIRE-14.
func TestRegistered(t *testing.T) {
	for name, want := range map[string]identity.Number{
		"256": 256, "17947": 17947, "16777215": 16777215,
		"1": 0, "255": 0, "0300": 0, "web": 0, "": 0, "-300": 0, "16777216": 0,
	} {
		if n, ok := registered(name); ok != (want != 0) || ok && n != want {
			t.Errorf("%q: %d, %t", name, n, ok)
		}
	}
}
