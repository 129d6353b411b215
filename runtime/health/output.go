// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/skep-operator/skep/runtime/printable"
)

// WriteText draws statuses, in the order of [Tree.Snapshot], as a tree with ids
// split at their dots. A part without a report is shown with the worst level
// of its children.
func WriteText(w io.Writer, statuses []Status, now time.Time) error {
	worst := Aggregate(statuses)
	var b strings.Builder
	var above []string // the path drawn last
	for _, s := range statuses {
		path := strings.Split(s.ID, ".")
		last := len(path) - 1
		for depth := range last {
			if len(above) > depth && slices.Equal(above[:depth+1], path[:depth+1]) {
				continue
			}
			fmt.Fprintf(&b, "%s%-8s %s\n", indent(depth), worst[strings.Join(path[:depth+1], ".")], printable.Line(path[depth]))
		}
		above = path
		fmt.Fprintf(&b, "%s%s\n", indent(last), s.line(path[last], now))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// maxError is how much of an error a line has, in bytes. It is mostly a text of others; a message is ours, and has names and lists in it that
// people need.
const maxError = 256

func (s Status) line(name string, now time.Time) string {
	line := fmt.Sprintf("%-8s %s", s.Level, printable.Line(name))
	if s.Message != "" {
		line += ": " + shorten(printable.Line(s.Message), maxText)
	}
	if s.Error != "" {
		line += ": " + shorten(printable.Line(firstLine(s.Error)), maxError)
	}
	return fmt.Sprintf("%s (%s)", line, now.Sub(s.Since).Round(time.Second))
}

// firstLine keeps the tree a tree; the JSON form has more of an error.
func firstLine(s string) string {
	first, _, more := strings.Cut(s, "\n")
	if more {
		first += " …"
	}
	return first
}

func indent(depth int) string { return strings.Repeat("  ", depth) }

// WriteJSON writes statuses as a JSON array.
func WriteJSON(w io.Writer, statuses []Status) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(statuses)
}
