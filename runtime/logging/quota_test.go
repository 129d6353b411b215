// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package logging

import (
	"testing"
	"time"
)

// A thing that is said fifty times a second has twenty lines, then one a minute, which says how many there were; another one has its own.
func TestQuota(t *testing.T) {
	var q Quota[string]
	begin, lines, skipped := time.Unix(1000, 0), 0, 0
	for i := range 50 * 600 {
		n, ok := q.Use("bb", begin.Add(time.Duration(i)*time.Second/50))
		if ok {
			lines++
			skipped += n
		}
	}
	if lines < 29 || lines > 30 || skipped < 50*530 || skipped > 50*600-lines {
		t.Errorf("in ten minutes there are %d lines, which stand for %d", lines, skipped)
	}
	if _, ok := q.Use("aa", begin.Add(10*time.Minute)); !ok {
		t.Error("another thing has no line")
	}
	for range quotaBurst {
		if _, ok := q.Use("bb", begin.Add(3*time.Hour)); !ok {
			t.Error("hours later it has no lines")
		}
	}
}

// However many things there are, few are remembered, and the others have a bound together.
func TestQuotaOfMany(t *testing.T) {
	var q Quota[int]
	begin, lines := time.Unix(1000, 0), 0
	for i := range 10 * maxQuotas {
		if _, ok := q.Use(i, begin); ok {
			lines++
		}
	}
	if n := len(q.now) + len(q.old); n > 2*maxQuotas || lines != maxQuotas+restBurst {
		t.Errorf("%d are remembered, there are %d lines", n, lines)
	}
	lines = 0
	for i := range 1000 {
		if _, ok := q.Use(-1, begin.Add(time.Duration(i)*restPause/50)); ok {
			lines++
		}
	}
	if lines < 19 || lines > 20 {
		t.Errorf("one that is not remembered has %d lines in 20 seconds", lines)
	}
	if skipped, ok := q.Use(-1, begin.Add(quotaTurn-time.Minute)); !ok || skipped == 0 {
		t.Errorf("minutes later it has a line: %t, for %d", ok, skipped)
	}
}
