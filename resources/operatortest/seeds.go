// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package operatortest

import (
	"iter"
	"os"
	"strconv"
	"testing"
)

// Seeds are the seeds of n random histories: a quarter of them under the race detector,
// which makes histories about ten times as slow, and fourteen times as many with SKEP_SOAK: more than 100,000 of all
// allocators.
// A test that fails prints its seed; SKEP_SEED=seed runs that history alone.
func Seeds(t *testing.T, n uint64) iter.Seq[uint64] {
	t.Helper()
	if text := os.Getenv("SKEP_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("SKEP_SEED: %v", err)
		}
		return func(yield func(uint64) bool) { yield(seed) }
	}
	switch {
	case os.Getenv("SKEP_SOAK") != "":
		n *= 14
	case RaceEnabled:
		n = max(1, n/4)
	}
	return func(yield func(uint64) bool) {
		for seed := range n {
			if t.Failed() || !yield(seed) {
				return
			}
		}
	}
}
