// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// claimOf is a claim of a CiliumNode of an age in seconds.
func claimOf(name string, age int, providerID string, has, shows bool) claim {
	n := new(ciliumNode)
	n.Name = name
	n.CreationTimestamp = slim.MakeTime(time.Unix(1_800_000_000-int64(age), 0))
	return claim{ciliumNode: n, provided: provided{id: providerID}, has: has, shows: shows}
}

// CIPAM-41: Nodes decide where both have a provider ID, then the term, then what is shown, then age, then names.
func TestOwnerAmong(t *testing.T) {
	const its, others = "aws:///z/i-1", "aws:///z/i-2"
	for _, test := range []struct {
		want string
		of   []claim
	}{
		{"old", []claim{claimOf("new", 1, "", false, false), claimOf("old", 2, "", false, false)}},
		{"a", []claim{claimOf("b", 1, "", false, false), claimOf("a", 1, "", false, false)}},
		{"shows", []claim{claimOf("old", 2, "", false, false), claimOf("shows", 1, "", false, true)}},
		{"has", []claim{claimOf("shows", 2, "", false, true), claimOf("has", 1, "", true, false)}},
		{"named", []claim{claimOf("has", 2, others, true, true), claimOf("named", 1, its, false, false)}},
		{"has", []claim{claimOf("has", 1, "", true, false), claimOf("named", 2, its, false, true)}},
		{"has", []claim{claimOf("has", 1, its, true, false), claimOf("named", 2, its, false, true)}},
		{"shows", []claim{claimOf("other", 2, others, false, false), claimOf("shows", 1, "", false, true)}},
		// one by one, the first goes before the second, that before the third, and that before the first
		{"unknown", []claim{claimOf("named", 1, its, false, false), claimOf("other", 3, others, false, false), claimOf("unknown", 2, "", false, false)}},
	} {
		slices.Reverse(test.of)
		for range 2 {
			if slices.Reverse(test.of); ownerAmong("i-1", test.of).Name != test.want {
				t.Errorf("%s has it, want %s", ownerAmong("i-1", test.of).Name, test.want)
			}
		}
	}
}

// One of all has it, the same in any order; and one that has it keeps it, but for one that its Node proves.
func TestOwnerAmongAny(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 41))
	for range 20_000 {
		var all []claim
		has := r.IntN(6)
		for i := range 1 + r.IntN(5) {
			id := []string{"", "aws:///z/i-1", "aws:///z/i-2"}[r.IntN(3)]
			all = append(all, claimOf(fmt.Sprint("n", i), r.IntN(3), id, i == has, r.IntN(2) == 0))
		}
		owner := ownerAmong("i-1", all)
		if owner == nil {
			t.Fatalf("none has it: %v", all)
		}
		name := owner.Name
		isProved := slices.ContainsFunc(all, func(c claim) bool { return c.id == "aws:///z/i-1" })
		if has < len(all) && all[has].Name != name && !(isProved && all[has].id == "aws:///z/i-2") {
			t.Fatalf("%s has it, in place of %s", name, all[has].Name)
		}
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		if again := ownerAmong("i-1", all).Name; again != name {
			t.Fatalf("%s has it, and in another order %s", name, again)
		}
	}
}

// The IDs of clouds, as their controllers write them.
func TestIsOfInstance(t *testing.T) {
	const scaleSet = "/subscriptions/s/resourcegroups/g/providers/microsoft.compute/virtualmachinescalesets/v/virtualmachines/0"
	for _, test := range []struct {
		providerID, instance string
		want                 bool
	}{
		{"aws:///eu-central-1a/i-0abc", "i-0abc", true},
		{"aws:///eu-central-1a/i-10abc", "0abc", false},
		{"aws:///eu-central-1a/i-0abc", "i-0ab", false},
		{"azure:///subscriptions/S/resourceGroups/G/providers/Microsoft.Compute/virtualMachineScaleSets/V/virtualMachines/0", scaleSet, true},
		{"azure:///subscriptions/S/resourceGroups/G/providers/Microsoft.Compute/virtualMachineScaleSets/V/virtualMachines/10", scaleSet, false},
		{"azure://" + scaleSet, scaleSet, true},
		{"cn-hangzhou.i-bp1x", "i-bp1x", true},
		{"cn-hangzhou.i-bp1x", "i-bp1", false},
		{"i-0abc", "i-0abc", true},
		{"k3s://node", "i-0abc", false},
		{"", "i-0abc", false},
		{"aws:///eu-central-1a/", "", false},
	} {
		if got := isOfInstance(test.providerID, test.instance); got != test.want {
			t.Errorf("%s, %s: %t", test.providerID, test.instance, got)
		}
	}
}
