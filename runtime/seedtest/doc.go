// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package seedtest gives tests their randomness: the seed of one random history, or the
// seeds of many, which are the same in each run, others in the long form (SKEP_SOAK), and
// repeated by SKEP_SEED. It imports nothing but the standard library, so that a test of
// memory links nothing for it. Generators of random values are not here.
package seedtest
