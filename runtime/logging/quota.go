// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package logging

import (
	"sync"
	"time"
)

// Quota bounds the lines of the log about each of many things, such as objects that others change again and again: some at once, then one a minute.
// The zero value is ready. Its methods are safe for concurrent use.
type Quota[K comparable] struct {
	mu       sync.Mutex
	now, old map[K]*quota // since the last turn, and before
	rest     quota        // of all that are not remembered
	turned   time.Time
}

// quota is what is left for one thing.
type quota struct {
	lines   float64
	at      time.Time
	skipped int
}

const (
	quotaBurst = 20
	quotaPause = time.Minute
	// quotaTurn is after how long at most a thing is forgotten that has all of its lines again. maxQuotas is how many are remembered in that time: all
	// others have some lines together, and then one a second.
	quotaTurn = quotaBurst * quotaPause
	maxQuotas = 8192
	restBurst = 1000
	restPause = time.Second
)

// Use reports whether a thing may have a line at a time, and how many it did not have since its last one.
func (q *Quota[K]) Use(of K, at time.Time) (skipped int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.now == nil || at.Sub(q.turned) > quotaTurn {
		q.old, q.now, q.turned = q.now, map[K]*quota{}, at
		q.rest.lines, q.rest.at = restBurst, at
	}
	has := q.now[of]
	if has == nil {
		if len(q.now) == maxQuotas {
			return q.rest.use(at, restBurst, restPause)
		}
		if has = q.old[of]; has == nil {
			has = &quota{lines: quotaBurst, at: at}
		}
		q.now[of] = has
	}
	return has.use(at, quotaBurst, quotaPause)
}

// use uses a line, if there is one: there are so many at once, and one more after each pause.
func (q *quota) use(at time.Time, burst float64, pause time.Duration) (skipped int, ok bool) {
	q.lines, q.at = min(burst, q.lines+at.Sub(q.at).Seconds()/pause.Seconds()), at
	if q.lines < 1 {
		q.skipped++
		return 0, false
	}
	q.lines--
	skipped, q.skipped = q.skipped, 0
	return skipped, true
}

// Skipped are the attributes of a line that follows so many which were not written: none if there were none.
func Skipped(n int) []any {
	if n == 0 {
		return nil
	}
	return []any{"skippedBefore", n}
}
