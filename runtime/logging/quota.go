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
	// quotaTurn is after how long at most a thing is forgotten that has all of its lines again. maxQuotas is how many are remembered in that time: of
	// others nothing is, and each has a line.
	quotaTurn = quotaBurst * quotaPause
	maxQuotas = 8192
)

// Use reports whether a thing may have a line at a time, and how many it did not have since its last one.
func (q *Quota[K]) Use(of K, at time.Time) (skipped int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.now == nil || at.Sub(q.turned) > quotaTurn {
		q.old, q.now, q.turned = q.now, map[K]*quota{}, at
	}
	has := q.now[of]
	if has == nil {
		if has = q.old[of]; has == nil {
			has = &quota{lines: quotaBurst, at: at}
		}
		if len(q.now) < maxQuotas {
			q.now[of] = has
		}
	}
	has.lines, has.at = min(quotaBurst, has.lines+at.Sub(has.at).Minutes()), at
	if has.lines < 1 {
		has.skipped++
		return 0, false
	}
	has.lines--
	skipped, has.skipped = has.skipped, 0
	return skipped, true
}

// Skipped are the attributes of a line that follows so many which were not written: none if there were none.
func Skipped(n int) []any {
	if n == 0 {
		return nil
	}
	return []any{"skippedBefore", n}
}
