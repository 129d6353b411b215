// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
)

// logBook keeps what is logged.
type logRecorder struct {
	mu    sync.Mutex
	lines []string
}

func (b *logRecorder) Enabled(context.Context, slog.Level) bool { return true }
func (b *logRecorder) WithAttrs([]slog.Attr) slog.Handler       { return b }
func (b *logRecorder) WithGroup(string) slog.Handler            { return b }

func (b *logRecorder) Handle(_ context.Context, r slog.Record) error {
	line := fmt.Sprintf("%s %s", r.Level, r.Message)
	r.Attrs(func(a slog.Attr) bool { line += fmt.Sprintf(" %s=%v", a.Key, a.Value); return true })
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, line)
	return nil
}

// count is how many lines have all the words.
func (b *logRecorder) count(words ...string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
lines:
	for _, line := range b.lines {
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue lines
			}
		}
		n++
	}
	return n
}

func (b *logRecorder) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.lines, "\n")
}
