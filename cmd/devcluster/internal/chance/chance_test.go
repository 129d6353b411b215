// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package chance

import (
	"slices"
	"testing"
)

func firing(plan Plan, seed uint64, id string, n int) (fired []int) {
	c := New(plan, seed, id)
	for i := range n {
		if c.Fires() {
			fired = append(fired, i)
		}
	}
	return fired
}

func TestPlan(t *testing.T) {
	for _, test := range []struct {
		plan Plan
		want []int
	}{
		{Plan{}, []int{0, 1, 2, 3, 4, 5, 6, 7}},
		{Plan{Skip: 2, Times: 3}, []int{2, 3, 4}},
		{Plan{Every: 3}, []int{0, 3, 6}},
		{Plan{Skip: 1, Every: 3, Times: 2}, []int{1, 4}},
		{Plan{Every: 1}, []int{0, 1, 2, 3, 4, 5, 6, 7}},
	} {
		if got := firing(test.plan, 1, "a", 8); !slices.Equal(got, test.want) {
			t.Errorf("%+v fires at %v, want %v", test.plan, got, test.want)
		}
	}
}

func TestProbabilityDependsOnSeedAndIDOnly(t *testing.T) {
	plan := Plan{Probability: 0.3}
	a := firing(plan, 7, "a", 1000)
	if len(a) < 250 || len(a) > 350 {
		t.Errorf("fired %d times of 1000 at probability 0.3", len(a))
	}
	if !slices.Equal(a, firing(plan, 7, "a", 1000)) {
		t.Error("the same seed gave another sequence")
	}
	if slices.Equal(a, firing(plan, 8, "a", 1000)) || slices.Equal(a, firing(plan, 7, "b", 1000)) {
		t.Error("another seed or ID gave the same sequence")
	}
}

func TestValidate(t *testing.T) {
	for _, plan := range []Plan{{Skip: -1}, {Every: -1}, {Times: -1}, {Probability: -0.1}, {Probability: 1.1}} {
		if plan.Validate() == nil {
			t.Errorf("%+v is accepted", plan)
		}
	}
	if err := (Plan{Skip: 1, Every: 2, Times: 3, Probability: 1}).Validate(); err != nil {
		t.Error(err)
	}
}
