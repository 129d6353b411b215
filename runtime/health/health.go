// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

import (
	"maps"
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
	// Degraded says what does not happen, and why. err may be nil.
	Degraded(message string, err error)
	// Stopped says that the part ended and is not missed.
	Stopped(message string)
	// Part is the reporter of a part of this part.
	Part(name string) Reporter
	// Gone takes the report of this part, and of the parts made with Part, out
	// of the tree. What others report below the same id stays.
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

// Tree collects the reports of one hive. It is safe for concurrent use.
type Tree struct {
	mu       sync.Mutex
	statuses map[string]*held
}

// held is a status and through what it was reported.
type held struct {
	Status
	by *opening
}

// opening is what a Reporter and its parts have in common.
type opening struct{ closed bool } // guarded by Tree.mu

// NewTree returns an empty tree.
func NewTree() *Tree { return &Tree{statuses: map[string]*held{}} }

// Reporter reports for the part of the given id. Nothing is in the tree before
// the first report.
func (t *Tree) Reporter(id string) Reporter { return reporter{t, id, nil} }

// Open is like Reporter for a part that will end: close takes all that was
// reported through it out of the tree, and what still comes is dropped.
func (t *Tree) Open(id string) (r Reporter, close func()) {
	o := &opening{}
	return reporter{t, id, o}, func() { t.close(o) }
}

type reporter struct {
	tree *Tree
	id   string
	by   *opening // nil: never closed
}

func (r reporter) OK(message string)         { r.report(OK, message, nil) }
func (r reporter) Stopped(message string)    { r.report(Stopped, message, nil) }
func (r reporter) Part(name string) Reporter { return reporter{r.tree, r.id + "." + name, r.by} }

func (r reporter) Degraded(message string, err error) { r.report(Degraded, message, err) }

func (r reporter) Gone() {
	r.tree.remove(func(h *held) bool {
		return h.by == r.by && (h.ID == r.id || strings.HasPrefix(h.ID, r.id+"."))
	})
}

func (r reporter) report(level Level, message string, err error) {
	t := r.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.by != nil && r.by.closed {
		return
	}
	s := t.statuses[r.id]
	if s == nil {
		s = &held{Status: Status{ID: r.id}}
		t.statuses[r.id] = s
	}
	if s.Level != level {
		s.Level, s.Since = level, time.Now()
	}
	s.by, s.Message, s.Error = r.by, message, ""
	if err != nil {
		s.Error = err.Error()
	}
	s.Reports++
}

func (t *Tree) close(o *opening) {
	t.mu.Lock()
	o.closed = true
	t.mu.Unlock()
	t.remove(func(h *held) bool { return h.by == o })
}

func (t *Tree) remove(which func(*held) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.statuses, func(_ string, h *held) bool { return which(h) })
}

// Snapshot is all reports in the order of the tree: a part after what it is
// part of.
func (t *Tree) Snapshot() []Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]Status, 0, len(t.statuses))
	for _, s := range t.statuses {
		list = append(list, s.Status)
	}
	slices.SortFunc(list, func(a, b Status) int {
		return slices.Compare(strings.Split(a.ID, "."), strings.Split(b.ID, "."))
	})
	return list
}

// Degraded are the reports of what is degraded, in the order of the tree.
func (t *Tree) Degraded() []Status {
	return slices.DeleteFunc(t.Snapshot(), func(s Status) bool { return s.Level != Degraded })
}

// Worst is the worst level of every id in statuses and of every id above one,
// its own and those of its parts taken together.
func Worst(statuses []Status) map[string]Level {
	worst := map[string]Level{}
	for _, s := range statuses {
		for id := s.ID; ; {
			if severity(s.Level) > severity(worst[id]) {
				worst[id] = s.Level
			}
			dot := strings.LastIndexByte(id, '.')
			if dot < 0 {
				break
			}
			id = id[:dot]
		}
	}
	return worst
}

// severity orders levels. What ended and is not missed counts least.
func severity(l Level) int { return slices.Index([]Level{Stopped, OK, Degraded}, l) }
