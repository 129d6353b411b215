// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodegc

import (
	"testing"

	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// NGC-2; number 17 of the contract's nodes.md: what cannot be decoded is left alone if it decides, and only then.
func TestOrphan(t *testing.T) {
	codec, err := slim.JSON[ciliumio.Node]()
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		`{"metadata":{"name":"a"}}`: true,
		`{"metadata":{"name":"a","annotations":{"cilium.io/do-not-gc":"true"}}}`:            false,
		`{"metadata":{"name":"a","annotations":{"cilium.io/do-not-gc":true}}}`:              false,
		`{"metadata":{"name":"a","annotations":{"cilium.io/do-not-gc":"TRUE"}}}`:            false,
		`{"metadata":{"name":"a","annotations":{"cilium.io/do-not-gc":"yes"}}}`:             true,
		`{"metadata":{"name":"a","annotations":["cilium.io/do-not-gc"]}}`:                   false,
		`{"metadata":{"name":"a","ownerReferences":[{"kind":"Node","name":"a"}]}}`:          false,
		`{"metadata":{"name":"a","ownerReferences":"Node"}}`:                                false,
		`{"metadata":{"name":"a","ownerReferences":[{"kind":7}]}}`:                          false,
		`{"metadata":{"name":"a"},"spec":{"ipam":{"podCIDRs":7},"encryption":{"key":"x"}}}`: true,
	} {
		n := &ciliumio.Node{}
		if err := codec.DecodeJSON([]byte(text), n); err != nil {
			t.Fatal(err)
		}
		if got := !n.CannotDecode(new(controller).Policy().Fields...) && orphan(n); got != want {
			t.Errorf("%s: garbage is %t", text, got)
		}
	}
}
