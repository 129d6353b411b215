// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import (
	"math"
	"time"
)

const (
	longestBackoff = 5 * time.Minute
	// backoffMemory is how long a failure counts for the back-off of the next one.
	backoffMemory = 10 * time.Minute
)

// backoff is the pause after the failure of this number, counted from one: random is from 0 to 1. It grows with the number
// of nodes, since they share the rate of the cloud.
func backoff(failure, nodes int, random float64) time.Duration {
	longest := math.Exp2(float64(min(failure, 16)))
	seconds := (1 + random*(longest-1)) * math.Log1p(float64(nodes))
	return min(time.Duration(seconds*float64(time.Second)), longestBackoff)
}

// retry is when a change that has failed is tried again.
type retry struct {
	failures int
	failedAt time.Time
	at       time.Time
}

// failed records a failure, and returns the pause before the next attempt.
func (r *retry) failed(now time.Time, nodes int, random float64) time.Duration {
	if now.Sub(r.failedAt) > backoffMemory+r.at.Sub(r.failedAt) {
		r.failures = 0
	}
	r.failures++
	pause := max(backoff(r.failures, nodes, random), time.Second)
	r.failedAt, r.at = now, now.Add(pause)
	return pause
}
