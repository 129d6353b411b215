// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

import (
	"errors"
	"fmt"
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

// API-17: a line has a bound, whatever others write, and shows what it is about, and what to do.
func TestLinesAreBounded(t *testing.T) {
	for what, others := range map[string]string{
		"long":    strings.Repeat("x", 240_000),
		"escaped": strings.Repeat("\x1b\u202e", 400),
		"wide":    strings.Repeat("日本", 50_000),
		"short":   "x",
	} {
		tree := NewTree()
		tree.Reporter("duty").Degraded("Ingress aa/a: "+others+": correct the annotation", errors.New("denied: "+others+": ask the administrator"))
		s := tree.Snapshot()[0]
		if len(s.Message) > maxText || len(s.Error) > maxText {
			t.Errorf("%s: the report has %d and %d bytes", what, len(s.Message), len(s.Error))
		}
		var b strings.Builder
		if err := WriteText(&b, tree.Snapshot(), time.Now()); err != nil {
			t.Fatal(err)
		}
		line := b.String()
		if most := len("Degraded duty: :  (0s)\n") + maxText + maxError; len(line) > most {
			t.Errorf("%s: %d bytes in a line, want %d", what, len(line), most)
		}
		message, err, _ := strings.Cut(line, ": correct the annotation")
		if !strings.HasPrefix(message, "Degraded duty: Ingress aa/a: ") || !strings.HasPrefix(err, ": denied: ") || !strings.Contains(err, ": ask the administrator (") {
			t.Errorf("%s: the line lacks what it is about, or what to do: %s", what, line)
		}
		if isCut := strings.Contains(line, " … "); isCut != (others != "x") {
			t.Errorf("%s: a mark that it is cut: %t: %s", what, isCut, line)
		}
	}
}

// API-17: a part that stands for many names shows one of them.
func TestNamesAreOneLine(t *testing.T) {
	tree := NewTree()
	n := NewNamed("Node", tree.Reporter("duty").Child("nodes"))
	for i := range 3000 {
		n.Set(fmt.Sprintf("n%04d", i), strings.Repeat("x", 5000))
	}
	s := tree.Snapshot()
	if len(s) != 1 || len(s[0].Message) > maxText || !strings.HasPrefix(s[0].Message, "Node n0000: x") || !strings.HasSuffix(s[0].Message, "x; and 2999 more") {
		t.Errorf("%d parts: %+v", len(s), s)
	}
}
