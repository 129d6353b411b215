// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ztunnel

import (
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// ZT-4 and ZT-5: a path is that of one ServiceAccount, and a SPIFFE ID.
func TestAccounts(t *testing.T) {
	domain := spiffeid.RequireTrustDomainFromString("spiffe.cilium")
	for key, want := range map[slim.Key]string{
		{Namespace: "shop", Name: "cart"}:                                    "/ns/shop/sa/cart",
		{Namespace: "shop", Name: "system.cart-1"}:                           "/ns/shop/sa/system.cart-1",
		{Namespace: "ns", Name: "sa"}:                                        "/ns/ns/sa/sa",
		{Namespace: "sa", Name: "ns"}:                                        "/ns/sa/sa/ns",
		{Namespace: strings.Repeat("n", 63), Name: strings.Repeat("s", 253)}: "/ns/" + strings.Repeat("n", 63) + "/sa/" + strings.Repeat("s", 253),
		{Namespace: "shop", Name: ""}:                                        "",
		{Namespace: "", Name: "cart"}:                                        "",
		{Namespace: "shop", Name: "."}:                                       "",
		{Namespace: "..", Name: "cart"}:                                      "",
		{Namespace: "shop", Name: "cart/../../ns/kube-system/sa/admin"}:      "",
		{Namespace: "shop/sa/x", Name: "cart"}:                               "",
		{Namespace: "shop", Name: "cart?admin"}:                              "",
		{Namespace: "shop", Name: "cart%2fadmin"}:                            "",
		{Namespace: "shop", Name: "cart admin"}:                              "",
		{Namespace: "shop", Name: "cärt"}:                                    "",
	} {
		a, ok := accountOf(key)
		if string(a) != want || ok != (want != "") {
			t.Errorf("%q: %q, %t", key, a, ok)
			continue
		}
		if !ok {
			continue
		}
		if lane := kind.Lane(a); lane != key.Namespace { // ZT-10
			t.Errorf("%q is of the lane %q", key, lane)
		}
		if parsed, ok := parse(want); !ok || parsed != a || a.key() != key {
			t.Errorf("%q is parsed as %q, %t, which is %q", want, parsed, ok, a.key())
		}
		if _, err := spiffeid.FromPath(domain, want); err != nil {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// ZT-8: other paths are of others.
func TestForeignPaths(t *testing.T) {
	for _, path := range []string{
		"", "/", "/ztunnel", "/ns/shop/sa", "/ns/shop/sa/", "/ns//sa/cart", "/ns/sa/cart", "/ns/shop/sa/cart/", "/ns/shop/sa/cart/x", "/ns/shop/x/sa/cart",
		"ns/shop/sa/cart", "/x/ns/shop/sa/cart", "/ns/shop/sa/..", "/ns/./sa/cart", "/identity/300", "/ns/ns/shop/sa/cart", "/ns/shop/sa/sa/cart", "/NS/shop/sa/cart",
	} {
		if a, ok := parse(path); ok {
			t.Errorf("%q is that of %q", path, a.key())
		}
	}
}

// Whatever a path is, it is that of no account, or of the account that has it.
func FuzzParse(f *testing.F) {
	f.Add("/ns/shop/sa/cart")
	f.Add("/ns/sa/sa/ns/sa/")
	f.Fuzz(func(t *testing.T, path string) {
		if a, ok := parse(path); ok {
			if again, ok := accountOf(a.key()); !ok || string(again) != path {
				t.Errorf("%q is that of %q, whose path is %q", path, a.key(), again)
			}
		}
	})
}
