// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustermesh

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// MESH-19: over any history of listings and changes no more objects are kept than the bound, nor more bytes, and what is there is never absent.
func TestObjectsAreBounded(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 19))
		most := 1 + r.IntN(4)
		mostBytes := r.IntN(2) * (objectSize + 20) * most
		o := newObjects(codec[string]{
			pack: func(_ string, _ slim.Key, value []byte, _ int) ([]byte, error) {
				if len(value) == 7 {
					return nil, errTooLarge
				}
				return value, nil
			},
			unpack: func(_ string, _ slim.Key, packed string) (*string, error) { return &packed, nil },
		}, most, mostBytes)
		value := func() []byte { return make([]byte, 1+r.IntN(20)) }
		published := map[slim.Key]bool{}
		check := func(at string) {
			t.Helper()
			if n, _ := o.count("a"); n > most {
				t.Fatalf("seed %d, %s: %d are kept, of %d", seed, at, n, most)
			}
			bytes := 0
			for key, one := range o.clusters["a"].objects {
				if bytes += one.size; one.size != sizeOf(key, []byte(one.packed)) {
					t.Fatalf("seed %d, %s: %s with %d bytes counts as %d", seed, at, key, len(one.packed), one.size)
				}
			}
			if bytes != o.clusters["a"].bytes || mostBytes > 0 && bytes > mostBytes {
				t.Fatalf("seed %d, %s: %d bytes are kept, of %d, and %d are counted", seed, at, bytes, mostBytes, o.clusters["a"].bytes)
			}
			for key := range published {
				if _, state := o.Get("a", key); state == Absent {
					t.Fatalf("seed %d, %s: %s is absent", seed, at, key)
				}
			}
		}
		for range 10 {
			o.begin("a")
			check("a listing begins")
			for key := range published {
				_ = o.set("a", key, value())
				check("a listing")
			}
			o.complete("a")
			check("a listing is complete")
			for range r.IntN(20) {
				key := slim.Key{Namespace: "shop", Name: fmt.Sprint(r.IntN(8))}
				switch {
				case r.IntN(2) > 0:
					published[key] = true
					_ = o.set("a", key, value())
				case published[key]: // etcd reports no other deletions
					delete(published, key)
					o.remove("a", key)
				}
				check("a change")
			}
		}
	}
}
