// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package command

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// gcPercent is half of Go's default: most memory of an operator is long-lived, so
// that earlier collections cost a few percent of CPU while streams fill, and none
// at rest.
const gcPercent = 50

// restPeriod is how long the process has to rest before its free memory is returned.
const restPeriod = time.Minute

// limitMemory keeps the memory of the process small until ctx ends, unless GOGC is set.
func limitMemory(ctx context.Context) {
	if _, chosen := os.LookupEnv("GOGC"); chosen {
		return
	}
	debug.SetGCPercent(gcPercent)
	go releaseAtRest(ctx)
}

// releaseAtRest returns free memory to the system after each period in which the process
// rested. Go keeps what its heap may grow to until the next collection, which an operator
// at rest does not use. The collections that this takes are in place of those of Go's timer,
// which come every two minutes.
func releaseAtRest(ctx context.Context) {
	ticker := time.NewTicker(restPeriod)
	defer ticker.Stop()
	before := collections()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if rested(before, collections()) {
			debug.FreeOSMemory()
		}
		before = collections()
	}
}

// rested reports whether so little was allocated in a period that at most one collection
// took place, for which the timer is enough.
func rested(before, after uint64) bool { return after-before <= 1 }

// collections is the number of collections so far.
func collections() uint64 {
	sample := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
