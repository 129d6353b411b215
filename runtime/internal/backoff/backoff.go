// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package backoff makes the growing pauses between attempts, those of jobs and
// those of rebuilds.
package backoff

import (
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Pauses are the pauses of attempts in a row.
type Pauses = backoff.BackOff

// New returns pauses that double from first to longest. Each is longer or
// shorter by up to the share jitter of it, at random.
func New(first, longest time.Duration, jitter float64) Pauses {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval, b.Multiplier, b.RandomizationFactor = first, longest, 2, jitter
	return b
}
