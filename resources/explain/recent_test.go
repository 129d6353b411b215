// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package explain

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/skep-operator/skep/runtime/seedtest"
)

// An entry that is set is the newest, and the oldest makes way, as in a list that is searched.
func TestRecent(t *testing.T) {
	for seed := range seedtest.Seeds(t, 50) {
		r := rand.New(rand.NewPCG(seed, 7))
		most := 1 + r.IntN(5)
		is, want := newRecent[int, int](most), [][2]int{}
		for i := range 100 {
			key := r.IntN(8)
			is.set(key, i)
			want = append(slices.DeleteFunc(want, func(e [2]int) bool { return e[0] == key }), [2]int{key, i})
			want = want[max(0, len(want)-most):]
			var got [][2]int
			for k, v := range is.all() {
				got = append(got, [2]int{k, v})
			}
			if fmt.Sprint(got) != fmt.Sprint(want) || is.len() != len(want) {
				t.Fatalf("SKEP_SEED=%d: %v, want %v", seed, got, want)
			}
			for key := range 8 {
				value, has := is.get(key)
				at := slices.IndexFunc(want, func(e [2]int) bool { return e[0] == key })
				if has != (at >= 0) || has && value != want[at][1] {
					t.Fatalf("SKEP_SEED=%d: %d is %d, %t", seed, key, value, has)
				}
			}
		}
	}
}
