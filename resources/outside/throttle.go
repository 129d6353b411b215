// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package outside

import (
	"sync"
	"time"
)

// Throttle is the pause that a server wants which refuses calls for their rate, and does not say for how long: it doubles while
// calls are refused. The zero value is ready for use, by many at once.
type Throttle struct {
	mu    sync.Mutex
	pause time.Duration
	until time.Time
}

const (
	firstPause = time.Second
	mostPause  = 30 * time.Second
)

// Passed is called after a call that was not refused.
func (t *Throttle) Passed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pause = 0
}

// Refused is the error of a call that was refused for its rate, by which a door keeps a pause.
func (t *Throttle) Refused(err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := time.Now(); !now.Before(t.until) { // calls that were under way when it began are refused as well
		t.pause = min(max(2*t.pause, firstPause), mostPause)
		t.until = now.Add(t.pause)
	}
	return Throttled(err, time.Until(t.until))
}
