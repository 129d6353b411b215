// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// K8S-24: the names of secrets of a configuration need no more memory than they have in etcd, and those beyond a bound are not kept: the configuration is vast
// then, as is one that has too many entries.
func TestManySecretNames(t *testing.T) {
	specOf := func(n int) []byte {
		var text strings.Builder
		text.WriteString(`{"resources":[`)
		for i := range n {
			fmt.Fprintf(&text, `{"name":"cilium-secrets/%05d"},`, n-i)
		}
		return []byte(text.String() + `{}]}`)
	}
	for n, want := range map[int]int{0: 0, 1: 1, 3: 3, mostSecretNames: mostSecretNames, mostSecretNames + 1: mostSecretNames, 45_000: mostSecretNames} {
		text := specOf(n)
		kept := make([]Spec, 20)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range kept {
			if err := kept[i].UnmarshalJSON(text); err != nil {
				t.Fatal(err)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		all := slices.Collect(kept[0].Secrets.All())
		if len(all) != want || !slices.IsSorted(all) || kept[0].Secrets.IsCut() != (n > want) || kept[0].isVast != (n > want) {
			t.Errorf("of %d %d are kept, cut %t, vast %t", n, len(all), kept[0].Secrets.IsCut(), kept[0].isVast)
		}
		for _, i := range []int{0, 1, n / 3, n / 2, n, n + 1} {
			is := i >= 1 && i <= n
			if got := kept[0].Secrets.Has(fmt.Sprintf("cilium-secrets/%05d", i)); got != is && (is || n == want) { // a hash may be that of two
				t.Errorf("of %d, number %d is one: %t", n, i, got)
			}
		}
		if size := int(after.HeapAlloc-before.HeapAlloc) / len(kept); n > 100 && size > len(text) {
			t.Errorf("%d names need %d bytes, and have %d in etcd", n, size, len(text))
		}
		runtime.KeepAlive(kept)
	}
	again := MakeSecretNames("c/b", "c/a", "c/b")
	if got := slices.Collect(again.All()); !slices.Equal(got, []string{"c/a", "c/b"}) || again.IsCut() || slices.Collect(SecretNames{}.All()) != nil {
		t.Errorf("%q", got)
	}
	for name, want := range map[string]bool{"c/a": true, "c/b": true, "c/": false, "c/aa": false, "": false, "c/a\"c/b": false, "d/a": false, "b/a": false} {
		if again.Has(name) != want || (SecretNames{}).Has(name) {
			t.Errorf("%q is one: %t", name, !want)
		}
	}
	for name := range again.All() {
		if name != "c/a" {
			t.Errorf("after the first one there is %q", name)
		}
		break
	}
}
