// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// Numbers 6.1 of the contract's tenants.md: what others wrote is part of a line, whatever it has, and never a line of its own.
func TestTextOfOthersIsOneLine(t *testing.T) {
	tree := NewTree()
	const forged = "\x1b[2J\x1b]0;title\a\nDegraded leader: lease stolen, run: …\u202e"
	tree.Reporter("duty").Degraded("secret "+forged, errors.New(forged))
	var b strings.Builder
	if err := WriteText(&b, tree.Snapshot(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(b.String(), "\n"); lines != 1 || strings.ContainsAny(b.String(), "\x1b\a\u202e") || !strings.Contains(b.String(), `\x1b[2J`) {
		t.Errorf("%d lines: %q", lines, b.String())
	}
}
