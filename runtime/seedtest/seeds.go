// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package seedtest

import (
	"hash/fnv"
	"iter"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Soak reports whether the long form of a test is wanted.
func Soak() bool { return os.Getenv("SKEP_SOAK") != "" }

// Repeated is the seed of SKEP_SEED, which a failed test has printed.
func Repeated(t *testing.T) (seed uint64, ok bool) {
	t.Helper()
	text := os.Getenv("SKEP_SEED")
	if text == "" {
		return 0, false
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("SKEP_SEED: %v", err)
	}
	return seed, true
}

// Seed is the seed of a random history: one by the name of the test, so that a change is
// judged by what it changes, another each time with SKEP_SOAK. It is logged; SKEP_SEED
// repeats it.
func Seed(t *testing.T) uint64 {
	t.Helper()
	seed, ok := Repeated(t)
	switch {
	case ok:
	case Soak():
		seed = rand.Uint64()
	default:
		h := fnv.New64a()
		h.Write([]byte(t.Name()))
		seed = h.Sum64()
	}
	t.Logf("SKEP_SEED=%d", seed)
	return seed
}

// Seeds are the seeds of n random histories: a quarter of them under the race detector,
// which makes histories about ten times as slow, and fourteen times as many with
// SKEP_SOAK: more than 100,000 of all allocators. A test that fails prints its seed;
// SKEP_SEED=seed runs that history alone.
func Seeds(t *testing.T, n uint64) iter.Seq[uint64] {
	t.Helper()
	if seed, ok := Repeated(t); ok {
		return func(yield func(uint64) bool) { yield(seed) }
	}
	switch {
	case Soak():
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

// From are the seeds of n histories, the first of which is known to show what a test looks
// for: it begins with that one, and needs the others once histories are made otherwise.
func From(first, n uint64) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for i := range n {
			if !yield(first + i) {
				return
			}
		}
	}
}
