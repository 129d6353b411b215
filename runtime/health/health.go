// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// Level is how a part fares.
type Level string

const (
	OK       Level = "OK"
	Degraded Level = "Degraded"
	Stopped  Level = "Stopped"
)

// Reporter reports for one part. Its methods may be called at any time, by any
// goroutine; each replaces the report before.
type Reporter interface {
	// OK says that the part does what it should; message says what it is at.
	OK(message string)
	// Degraded says what does not happen, and why.
	Degraded(message string, err error)
	// Stopped says that the part ended and is not missed.
	Stopped(message string)
	// Part is the reporter of a part of this part.
	Part(name string) Reporter
	// Gone takes the report of this part, and of its parts, out of the tree.
	Gone()
}

// Status is the last report of a part.
type Status struct {
	ID      string    `json:"id"` // ids of modules and parts with dots between
	Level   Level     `json:"level"`
	Message string    `json:"message,omitempty"`
	Error   string    `json:"error,omitempty"`
	Since   time.Time `json:"since"` // of the level, not of the message
	Reports int       `json:"reports"`
}

// Tree collects the reports of one hive.
type Tree struct {
	now func() time.Time

	mu       sync.Mutex
	statuses map[string]*Status
}

// NewTree returns an empty tree.
func NewTree() *Tree {
	return &Tree{now: time.Now, statuses: map[string]*Status{}}
}

// Reporter reports for the part of the given id. Nothing is in the tree before
// the first report.
func (t *Tree) Reporter(id string) Reporter { return reporter{t, id} }

type reporter struct {
	tree *Tree
	id   string
}

func (r reporter) OK(message string)         { r.tree.report(r.id, OK, message, nil) }
func (r reporter) Stopped(message string)    { r.tree.report(r.id, Stopped, message, nil) }
func (r reporter) Part(name string) Reporter { return reporter{r.tree, r.id + "." + name} }
func (r reporter) Gone()                     { r.tree.remove(r.id) }

func (r reporter) Degraded(message string, err error) {
	r.tree.report(r.id, Degraded, message, err)
}

func (t *Tree) report(id string, level Level, message string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.statuses[id]
	if s == nil {
		s = &Status{ID: id}
		t.statuses[id] = s
	}
	if s.Level != level {
		s.Level, s.Since = level, t.now()
	}
	s.Message, s.Error = message, ""
	if err != nil {
		s.Error = err.Error()
	}
	s.Reports++
}

func (t *Tree) remove(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for other := range t.statuses {
		if other == id || strings.HasPrefix(other, id+".") {
			delete(t.statuses, other)
		}
	}
}

// Snapshot is all reports, by id.
func (t *Tree) Snapshot() []Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]Status, 0, len(t.statuses))
	for _, s := range t.statuses {
		list = append(list, *s)
	}
	slices.SortFunc(list, func(a, b Status) int { return strings.Compare(a.ID, b.ID) })
	return list
}

// Degraded are the reports of what is degraded, by id.
func (t *Tree) Degraded() []Status {
	return slices.DeleteFunc(t.Snapshot(), func(s Status) bool { return s.Level != Degraded })
}

// WriteText draws statuses as a tree, ids split at their dots.
func WriteText(w io.Writer, statuses []Status, now time.Time) error {
	var open []string // the path that is already drawn
	for _, s := range statuses {
		path := strings.Split(s.ID, ".")
		shared := 0
		for shared < len(path)-1 && shared < len(open) && path[shared] == open[shared] {
			shared++
		}
		for depth := shared; depth < len(path)-1; depth++ {
			if _, err := fmt.Fprintf(w, "%s%s\n", indent(depth), path[depth]); err != nil {
				return err
			}
		}
		open = path
		if _, err := fmt.Fprintf(w, "%s%s\n", indent(len(path)-1), s.line(path[len(path)-1], now)); err != nil {
			return err
		}
	}
	return nil
}

func (s Status) line(name string, now time.Time) string {
	line := fmt.Sprintf("%-8s %s", s.Level, name)
	if s.Message != "" {
		line += ": " + s.Message
	}
	if s.Error != "" {
		line += ": " + s.Error
	}
	return fmt.Sprintf("%s (%s)", line, now.Sub(s.Since).Round(time.Second))
}

func indent(depth int) string { return strings.Repeat("  ", depth) }

// WriteJSON writes statuses as a JSON array.
func WriteJSON(w io.Writer, statuses []Status) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(statuses)
}
