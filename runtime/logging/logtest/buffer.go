// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package logtest

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skep-operator/skep/runtime/waittest"
)

// Buffer keeps what a log writes. The zero value is empty and ready; it is safe
// for concurrent use.
type Buffer struct {
	mu    sync.Mutex
	text  bytes.Buffer
	grows chan struct{} // closed by the next write; nil without waiters
}

// Write appends p. It never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.grows != nil {
		close(b.grows)
		b.grows = nil
	}
	return b.text.Write(p)
}

// String is all that was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// After is what was written after the first n bytes.
func (b *Buffer) After(n int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.text.Bytes()[n:])
}

// Lines are those that were written so far, without their ends.
func (b *Buffer) Lines() []string {
	var lines []string
	for line := range strings.Lines(b.String()) {
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
	return lines
}

// Count is how many lines have all the words.
func (b *Buffer) Count(words ...string) int {
	n := 0
	for line := range strings.Lines(b.String()) {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			n++
		}
	}
	return n
}

// Wait returns when a line has all the words. A test in which none comes fails.
func (b *Buffer) Wait(t testing.TB, words ...string) {
	t.Helper()
	deadline := time.NewTimer(waittest.Limit)
	defer deadline.Stop()
	for {
		grows := b.next()
		if b.Count(words...) > 0 {
			return
		}
		select {
		case <-grows:
		case <-deadline.C:
			t.Fatalf("not logged within %s: %q; the log is\n%s", waittest.Limit, words, b.WithoutOptions())
		}
	}
}

// next is closed when something more is written.
func (b *Buffer) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.grows == nil {
		b.grows = make(chan struct{})
	}
	return b.grows
}

// WithoutOptions is the log without the lines that say how options are set.
func (b *Buffer) WithoutOptions() string {
	var kept strings.Builder
	for line := range strings.Lines(b.String()) {
		if !strings.Contains(line, `msg="  --`) {
			kept.WriteString(line)
		}
	}
	return kept.String()
}
