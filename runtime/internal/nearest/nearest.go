// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package nearest finds the known name that a mistyped one was meant to be.
package nearest

import "strings"

// To returns the candidate closest to name and true, if one is close enough to
// be what a person meant: one whose last part, behind a dot, is the name, or at
// most one edit per three letters. Equal distances go to the first candidate.
func To(name string, candidates []string) (string, bool) {
	for _, c := range candidates {
		if name != "" && strings.HasSuffix(c, "."+name) {
			return c, true
		}
	}
	best, distance := "", len(name)/3+1
	for _, c := range candidates {
		if d := Distance(name, c, distance); d < distance {
			best, distance = c, d
		}
	}
	return best, best != ""
}

// Hint is a sentence naming the nearest candidate, or the fallback.
func Hint(name string, candidates []string, fallback string) string {
	if c, ok := To(name, candidates); ok {
		return "did you mean " + c + "?"
	}
	return fallback
}

// Distance is the number of insertions, deletions, replacements and swaps of
// neighbours that turn a into b, or limit where it is not less.
func Distance(a, b string, limit int) int {
	if diff := len(a) - len(b); diff >= limit || -diff >= limit {
		return limit
	}
	before, previous, current := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range previous {
		previous[j] = j
	}
	for i := 1; i <= len(a); i++ {
		current[0] = i
		low := current[0]
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			current[j] = min(previous[j]+1, current[j-1]+1, previous[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				current[j] = min(current[j], before[j-2]+1)
			}
			low = min(low, current[j])
		}
		if low >= limit {
			return limit
		}
		before, previous, current = previous, current, before
	}
	return min(previous[len(b)], limit)
}
