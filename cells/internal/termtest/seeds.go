// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package termtest

import (
	"iter"
	"os"
	"strconv"
	"testing"
)

// Seeds are those of n random histories, ten times as many with SKEP_SOAK. A test
// that fails names its seed; SKEP_SEED runs that history alone.
func Seeds(t *testing.T, n uint64) iter.Seq[uint64] {
	t.Helper()
	if text := os.Getenv("SKEP_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("SKEP_SEED: %v", err)
		}
		return func(yield func(uint64) bool) { yield(seed) }
	}
	if os.Getenv("SKEP_SOAK") != "" {
		n *= 10
	}
	return func(yield func(uint64) bool) {
		for seed := range n {
			if t.Failed() || !yield(seed) {
				return
			}
		}
	}
}
