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
		p.add("hook", "m.hook-x", "leader", time.Millisecond)
	}
	if got := len(p.entries); got != profileLimit {
		t.Errorf("%d entries", got)
	}
}
