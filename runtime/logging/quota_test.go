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

// However many things there are, few are remembered.
func TestQuotaOfMany(t *testing.T) {
	var q Quota[int]
	at := time.Unix(1000, 0)
	for i := range 10 * maxQuotas {
		if _, ok := q.Use(i, at.Add(time.Duration(i)*time.Millisecond)); !ok {
			t.Fatalf("%d has no line", i)
		}
	}
	if n := len(q.now) + len(q.old); n > 2*maxQuotas {
		t.Errorf("%d are remembered", n)
	}
}
