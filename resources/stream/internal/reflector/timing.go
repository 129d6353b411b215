// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reflector

import "time"

// timing bounds what a stream waits for. Tests shorten it.
type timing struct {
	answer      time.Duration // for the headers of an answer
	silence     time.Duration // between two reads of a list or of initial events
	idle        time.Duration // between two reads of a watch; bookmarks come every minute
	lifetime    time.Duration // of a watch beyond the time the server was asked for
	retry       time.Duration // first of the delays between two attempts
	retryMax    time.Duration // last of them
	cutMax      time.Duration // the same after connections that end early, and were good until then
	forbidden   time.Duration // first of the delays after 403s in a row
	absent      time.Duration // the same after 404s, where definitions cannot be watched
	refusals    time.Duration // last of both
	stableAfter time.Duration // a connection that lived so long resets the delays
}

var defaultTiming = timing{
	answer:      70 * time.Second,
	silence:     10 * time.Second,
	idle:        3 * time.Minute,
	lifetime:    30 * time.Second,
	retry:       100 * time.Millisecond,
	retryMax:    30 * time.Second,
	cutMax:      3 * time.Second,
	forbidden:   2 * time.Second,
	absent:      10 * time.Second,
	refusals:    30 * time.Second,
	stableAfter: 30 * time.Second,
}
