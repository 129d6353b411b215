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

// Level is the state of a part.
type Level string

const (
	OK       Level = "OK"
	Degraded Level = "Degraded"
	Stopped  Level = "Stopped"
)

// maxText is how much of a message or an error a report has, in bytes: what others write can be in it.
const maxText = 1000

// shorten returns at most so many bytes of a text. One that has more loses its middle: a text begins with what it is about, and ends with what
// to do, and what others write stands between. What it returns does not keep the rest in memory.
func shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	const mark = " … "
	begin := (most - len(mark)) * 2 / 3
	end := len(text) - (most - len(mark) - begin)
	return strings.ToValidUTF8(text[:begin], "") + mark + strings.ToValidUTF8(text[end:], "")
}

// Reporter reports for one part. Its methods may be called at any time, by any
// goroutine; each replaces the report before.
type Reporter interface {
	// OK reports that the part works; message is its present activity.
	OK(message string)
	// Degraded reports what does not happen, and why. err may be nil.
	Degraded(message string, err error)
	// Stopped reports that the part ended as planned.
	Stopped(message string)
	// Child is the reporter of a part of this part.
	Child(name string) Reporter
	// Remove removes the reports of this part and of its children from the tree.
	// Reports of other reporters below the same id stay.
	Remove()
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
	statuses map[string]*entry
}

// entry is a status and the registration through which it was reported.
type entry struct {
	Status
	by *registration
}

// registration is shared by a Reporter and its children.
type registration struct{ closed bool } // guarded by Tree.mu

// NewTree returns an empty tree.
func NewTree() *Tree { return &Tree{statuses: map[string]*entry{}} }

// Reporter reports for the part of the given id. Nothing is in the tree before
// the first report.
func (t *Tree) Reporter(id string) Reporter { return reporter{t, id, nil} }

// Open is like Reporter for a part that will end: close takes all that was
// reported through it out of the tree, and drops later reports.
func (t *Tree) Open(id string) (r Reporter, close func()) {
	o := &registration{}
	return reporter{t, id, o}, func() { t.close(o) }
}

type reporter struct {
	tree *Tree
	id   string
	by   *registration // nil: never closed
}

func (r reporter) OK(message string)          { r.report(OK, message, nil) }
func (r reporter) Stopped(message string)     { r.report(Stopped, message, nil) }
func (r reporter) Child(name string) Reporter { return reporter{r.tree, r.id + "." + name, r.by} }

func (r reporter) Degraded(message string, err error) { r.report(Degraded, message, err) }

func (r reporter) Remove() {
	r.tree.remove(func(h *entry) bool {
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
		s = &entry{Status: Status{ID: r.id}}
		t.statuses[r.id] = s
	}
	if s.Level != level {
		s.Level, s.Since = level, time.Now()
	}
	s.by, s.Message, s.Error = r.by, shorten(message, maxText), ""
	if err != nil {
		s.Error = shorten(err.Error(), maxText)
	}
	s.Reports++
}

func (t *Tree) close(o *registration) {
	t.mu.Lock()
	o.closed = true
	t.mu.Unlock()
	t.remove(func(h *entry) bool { return h.by == o })
}

func (t *Tree) remove(which func(*entry) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.statuses, func(_ string, h *entry) bool { return which(h) })
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

// Aggregate is the worst level of each id, its own and those below it: for every
// id in statuses and every id above one.
func Aggregate(statuses []Status) map[string]Level {
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

// severity orders levels. Stopped counts least.
func severity(l Level) int { return slices.Index([]Level{Stopped, OK, Degraded}, l) }
