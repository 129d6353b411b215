// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive

import (
	"testing"
	"time"
)

func TestAProfileDoesNotGrowForever(t *testing.T) {
	p := newProfile()
	for range profileLimit + 10 {
		p.record(Event{Kind: EventHookStarted, Name: "m.hook-x", Term: "leader", Took: time.Millisecond})
	}
	if got := len(p.entries); got != profileLimit {
		t.Errorf("%d entries", got)
	}
}
