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
