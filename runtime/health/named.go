// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Named is a part of health that is degraded while something with a name has a problem. It is safe for concurrent use.
type Named struct {
	kind string
	part Reporter

	mu       sync.Mutex
	problems map[string]string
}

// NewNamed returns a part that reports nothing yet. Kind is what has the names, such as Node.
func NewNamed(kind string, part Reporter) *Named {
	return &Named{kind: kind, part: part, problems: map[string]string{}}
}

// Set sets the problem of a name, "" for none, and returns whether it is a new one.
func (n *Named) Set(name, problem string) (isNew bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.problems[name] == problem {
		return false
	}
	if n.problems[name] = problem; problem == "" {
		delete(n.problems, name)
	}
	n.report()
	return problem != ""
}

// Any reports whether something has a problem.
func (n *Named) Any() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.problems) > 0
}

// Clear ends all problems.
func (n *Named) Clear() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.problems) > 0 {
		clear(n.problems)
		n.report()
	}
}

// report is called with the lock held.
func (n *Named) report() {
	if len(n.problems) == 0 {
		n.part.OK("")
		return
	}
	first := slices.Min(slices.Collect(maps.Keys(n.problems)))
	text := fmt.Sprintf("%s %s: %s", n.kind, first, n.problems[first])
	if more := len(n.problems) - 1; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	n.part.Degraded(text, nil)
}
