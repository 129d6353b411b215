// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"cmp"
	"slices"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// Part is what an object adds to a configuration that several objects share.
type Part struct {
	Object  slim.Key
	Created slim.Time
	// Size is in any unit, the same for all.
	Size int
}

// LeaveOut returns the objects that a configuration goes without so that the others are of a size of most together (ENV-30). The
// youngest object of the namespace that has most of it goes first, so that the objects of one namespace do not keep out those of another that has
// less. What fits afterwards stays. The order of parts does not matter.
func LeaveOut(parts []Part, most int) []slim.Key {
	byNamespace, sums, total := map[string][]Part{}, map[string]int{}, 0
	for _, p := range parts {
		byNamespace[p.Object.Namespace] = append(byNamespace[p.Object.Namespace], p)
		sums[p.Object.Namespace] += p.Size
		total += p.Size
	}
	for _, of := range byNamespace {
		slices.SortFunc(of, byAge)
	}
	var out []Part
	for total > max(most, 0) {
		namespace := largest(sums)
		of := byNamespace[namespace]
		youngest := of[len(of)-1]
		byNamespace[namespace] = of[:len(of)-1]
		if sums[namespace] -= youngest.Size; len(of) == 1 {
			delete(sums, namespace)
		}
		total -= youngest.Size
		out = append(out, youngest)
	}
	var keys []slim.Key
	for _, p := range slices.Backward(out) {
		if total+p.Size <= most {
			total += p.Size
			continue
		}
		keys = append(keys, p.Object)
	}
	return keys
}

// byAge orders the oldest first.
func byAge(a, b Part) int {
	return cmp.Or(cmp.Compare(a.Created, b.Created), cmp.Compare(a.Object.Name, b.Object.Name))
}

// largest is the namespace with the largest sum; of equal ones the last.
func largest(sums map[string]int) (namespace string) {
	first := true
	for of, sum := range sums {
		if first || cmp.Or(cmp.Compare(sum, sums[namespace]), cmp.Compare(of, namespace)) > 0 {
			namespace, first = of, false
		}
	}
	return namespace
}
