// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package fair

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

type item struct {
	lane   string
	number int
}

func laneOf(i item) string { return i.lane }

// K7 of the contract's tenants.md: whatever there is, each lane's item of a turn comes before any lane's item of the next turn, and those of a lane keep their order.
func TestTurns(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		var items []item
		for range r.IntN(60) {
			items = append(items, item{fmt.Sprint("lane-", r.IntN(1+r.IntN(9))), len(items)})
		}
		before := slices.Clone(items)
		all := Turns(items, laneOf, fmt.Sprint("lane-", r.IntN(9)))
		last, had := map[string]int{}, map[string]int{}
		turn := 1
		for _, i := range all {
			if n, known := last[i.lane]; known && n >= i.number {
				t.Fatalf("seed %d: %v comes after %d of its lane", seed, i, n)
			}
			last[i.lane] = i.number
			if had[i.lane]++; had[i.lane] < turn {
				t.Fatalf("seed %d: turn %d of %s comes after turn %d of another lane", seed, had[i.lane], i.lane, turn)
			}
			turn = had[i.lane]
		}
		sorted := slices.SortedFunc(slices.Values(all), func(a, b item) int { return a.number - b.number })
		if !slices.Equal(sorted, items) || !slices.Equal(items, before) {
			t.Fatalf("seed %d: of %v there are %v", seed, before, all)
		}
	}
}

// A list that is cut again and again serves all lanes alike, however short the part is that is served.
func TestTurnsGoOnBehindTheLast(t *testing.T) {
	var items []item
	for lane := range 7 {
		for n := range 30 {
			items = append(items, item{fmt.Sprint("lane-", lane), n})
		}
	}
	for part := 1; part < 20; part++ {
		served, after := map[string]int{}, ""
		for range 40 {
			some := Turns(items, laneOf, after)[:part]
			for _, i := range some {
				served[i.lane]++
			}
			after = some[part-1].lane
		}
		least, most := 40*part, 0
		for lane := range 7 {
			n := served[fmt.Sprint("lane-", lane)]
			least, most = min(least, n), max(most, n)
		}
		if most-least > 1 {
			t.Errorf("parts of %d: %v", part, served)
		}
	}
}
