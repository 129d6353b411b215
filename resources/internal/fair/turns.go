// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package fair

import (
	"maps"
	"slices"
)

// Turns returns items by turns of their lanes: the first of each lane, then the second of each, and so on. Items of a lane keep their order. The lanes are in the
// order of their names, from the first one behind after, so that a list which is cut goes on where it ended: after is the lane of the last item that was served, or
// "". The items are not changed.
func Turns[T any](items []T, laneOf func(T) string, after string) []T {
	lanes := map[string][]T{}
	for _, i := range items {
		lane := laneOf(i)
		lanes[lane] = append(lanes[lane], i)
	}
	order := slices.Sorted(maps.Keys(lanes))
	behind, found := slices.BinarySearch(order, after)
	if found {
		behind++
	}
	order = slices.Concat(order[behind:], order[:behind])
	all := make([]T, 0, len(items))
	for turn := 0; len(order) > 0; turn++ {
		order = slices.DeleteFunc(order, func(lane string) bool { return turn >= len(lanes[lane]) })
		for _, lane := range order {
			all = append(all, lanes[lane][turn])
		}
	}
	return all
}
