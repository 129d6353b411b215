// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/skep-operator/skep/resources/stream/slim"
)

func part(namespace, name string, created, size int) Part {
	return Part{slim.Key{Namespace: namespace, Name: name}, slim.Time(created), size}
}

// ENV-30.
func TestLeaveOut(t *testing.T) {
	small := []Part{part("aa", "a1", 1, 10), part("aa", "a2", 2, 10), part("aa", "a3", 9, 10)}
	for name, test := range map[string]struct {
		parts []Part
		most  int
		want  []string
	}{
		"all fits":                          {small, 30, nil},
		"nothing":                           {nil, 0, nil},
		"the youngest goes":                 {small, 29, []string{"aa/a3"}},
		"of the namespace that has most":    {slices.Concat(small, []Part{part("bb", "b1", 0, 50), part("bb", "b2", 1, 50)}), 100, []string{"bb/b2"}},
		"one that is larger than all":       {slices.Concat(small, []Part{part("bb", "b1", 0, 500)}), 100, []string{"bb/b1"}},
		"what fits afterwards stays":        {[]Part{part("aa", "a1", 1, 40), part("aa", "a2", 2, 20), part("bb", "b1", 3, 55)}, 70, []string{"bb/b1"}},
		"of one age, the last by name goes": {[]Part{part("aa", "x", 1, 10), part("aa", "y", 1, 10)}, 15, []string{"aa/y"}},
		"of equal namespaces, the last":     {[]Part{part("aa", "x", 1, 10), part("bb", "x", 1, 10)}, 15, []string{"bb/x"}},
	} {
		var got []string
		for _, key := range LeaveOut(test.parts, test.most) {
			got = append(got, key.String())
		}
		slices.Sort(got)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// Whatever there is, the rest fits; a namespace that has no more than its share loses nothing, whatever others add; and the order
// of the parts makes no difference.
func TestLeaveOutIsFair(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		var parts []Part
		for i := range r.IntN(30) {
			parts = append(parts, part(string(rune('a'+r.IntN(4))), fmt.Sprint(i), r.IntN(5), 1+r.IntN(40)))
		}
		most := r.IntN(400)
		out := LeaveOut(parts, most)
		sums, total, namespaces := map[string]int{}, 0, map[string]bool{}
		for _, p := range parts {
			namespaces[p.Object.Namespace] = true
			sums[p.Object.Namespace] += p.Size
			if !slices.Contains(out, p.Object) {
				total += p.Size
			}
		}
		if total > most {
			t.Fatalf("%v: %d are kept of %d", parts, total, most)
		}
		for _, key := range out {
			if sums[key.Namespace]*len(namespaces) <= most {
				t.Fatalf("%v: %s is left out of %d, and its namespace has no more than its share", parts, key, most)
			}
		}
		r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		again := LeaveOut(parts, most)
		if !slices.Equal(out, again) {
			t.Fatalf("%v: %v, then %v", parts, out, again)
		}
	}
}
