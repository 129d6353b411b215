// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package stacks finds, in the stacks that the Go runtime prints, the few lines
// that people need: where a goroutine hangs, and where one panicked. It starts
// nothing and keeps nothing.
package stacks

import (
	"fmt"
	"runtime/pprof"
	"slices"
	"strings"

	"github.com/skep-operator/skep/runtime/internal/decl"
)

// Hanging is where the goroutine stands that carries the pprof labels (keys and
// values in turn, sorted by key) and has called function, or a function literal
// in it: one line per frame, innermost first, down to that call. Goroutines that
// it started carry the labels, too, but not the call.
func Hanging(function string, labels ...string) string {
	stack, found := Find(function, labels...)
	if !found {
		return "  unknown: it has just ended"
	}
	return stack
}

// Find is Hanging, and reports whether there is such a goroutine.
func Find(function string, labels ...string) (stack string, found bool) {
	var all strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
		return "  unknown: " + err.Error(), true
	}
	var pairs []string
	for pair := range slices.Chunk(labels, 2) {
		pairs = append(pairs, fmt.Sprintf("%q:%q", pair[0], pair[1]))
	}
	label := strings.Join(pairs, ", ")
	for record := range strings.SplitSeq(all.String(), "\n\n") {
		if !strings.Contains(record, label) {
			continue
		}
		if frames, ok := framesAbove(record, function); ok {
			return strings.Join(frames, "\n"), true
		}
	}
	return "", false
}

// framesAbove are the frames of a record above the one of function, which must
// be there.
func framesAbove(record, function string) (frames []string, ok bool) {
	for line := range strings.SplitSeq(record, "\n") {
		// # 0x4ab123 <tab> package.function+0x12 <tab> /path/file.go:34
		fields := strings.Split(line, "\t")
		if len(fields) < 4 || fields[0] != "#" {
			continue
		}
		call, _, _ := strings.Cut(strings.TrimSpace(fields[2]), "+0x")
		if call == function || strings.HasPrefix(call, function+".func") {
			return frames, true
		}
		file := strings.TrimSpace(fields[len(fields)-1])
		frames = append(frames, fmt.Sprintf("  %s (%s)", decl.ShortName(call), decl.Place(call, file)))
	}
	return nil, false
}

// Panicked is the place in the source where the goroutine of a stack, as
// printed while its panic was recovered, panicked.
func Panicked(stack []byte) string {
	lines := strings.Split(string(stack), "\n")
	for i, l := range lines {
		if !strings.HasPrefix(l, "panic(") {
			continue
		}
		for j := i + 2; j+1 < len(lines); j += 2 { // a call and its file take a line each
			if !strings.HasPrefix(lines[j], "runtime.") {
				return decl.Place(lines[j], lines[j+1])
			}
		}
	}
	return "unknown place"
}
