// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// ENV-32; numbers 21 and 22 of the contract's ingress.md, and 22 of its gateway-api.md.
func TestConfigNames(t *testing.T) {
	const (
		long  = "cilium-ingress-shop-an-ingress-with-a-name-that-is-longer-than-48-characters-ok"
		short = "cilium-ingress-shop-an-ingress-with-a-name-that-is-l-7k2bk49m72"
	)
	before, newest := release.All()[2], release.Newest()
	owner := &metav1.OwnerReference{APIVersion: "networking.k8s.io/v1", Kind: "Ingress", Name: "i", UID: "2d1d3f3c-0000-4000-8000-000000000001", Controller: new(true)}
	other := *owner
	other.Name, other.UID = "j", "2d1d3f3c-0000-4000-8000-000000000002"
	for name, test := range map[string]struct {
		r    release.Release
		has  map[string]*metav1.OwnerReference
		use  string
		goes string
	}{
		"1.19, none":                   {before, nil, long, ""},
		"1.20, none":                   {newest, nil, short, ""},
		"1.20, the long":               {newest, map[string]*metav1.OwnerReference{long: owner}, long, ""},
		"1.19, the short":              {before, map[string]*metav1.OwnerReference{short: owner}, short, ""},
		"1.20, both":                   {newest, map[string]*metav1.OwnerReference{short: owner, long: owner}, short, long},
		"1.19, both":                   {before, map[string]*metav1.OwnerReference{short: owner, long: owner}, long, short},
		"1.20, another's":              {newest, map[string]*metav1.OwnerReference{long: &other}, short, ""},
		"1.20, both, one is another's": {newest, map[string]*metav1.OwnerReference{short: owner, long: &other}, short, ""},
	} {
		configs, err := stream.NewLocal[Object]()
		if err != nil {
			t.Fatal(err)
		}
		configs.Replace()
		for name, owner := range test.has {
			o := &Object{}
			o.Name, o.Namespace = name, slim.MakeString("shop")
			o.Controller = slim.MakeOwner(slim.OwnerReference{APIVersion: slim.MakeString(owner.APIVersion), Kind: slim.MakeString(owner.Kind), Name: owner.Name, UID: slim.ParseUID(string(owner.UID))})
			configs.Upsert(o)
		}
		store, err := configs.Store(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		use, goes := NewConfigNames("shop", long).Choose(store, owner, test.r)
		if use.Name != test.use || goes.Name != test.goes {
			t.Errorf("%s: %s is written and %s goes, want %s and %s", name, use.Name, goes.Name, test.use, test.goes)
		}
	}
	if n := NewConfigNames("shop", "x-"+strings.Repeat("n", 253)); len(n.long.Name) > 63 || n.long != n.short {
		t.Errorf("a name that is too long is %s", n.long.Name)
	}
}
