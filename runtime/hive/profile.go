// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive

import (
	"encoding/json"
	"os"
	"sync"
	"time"
)

// profile records how long the steps of the start took.
type profile struct {
	began time.Time

	mu      sync.Mutex
	entries []ProfileEntry
}

// ProfileEntry is one step of the start, as written by --profile-startup.
type ProfileEntry struct {
	Phase string  `json:"phase"` // declare, configure, select, validate, build, constructor, hook, start
	Name  string  `json:"name,omitempty"`
	Term  string  `json:"term,omitempty"`
	AtMS  float64 `json:"atMs"` // since the hive was made
	MS    float64 `json:"ms"`
}

func newProfile() *profile { return &profile{began: time.Now()} }

// profileLimit is how many entries are kept: a process that enters its term
// again and again is not starting any more.
const profileLimit = 2000

// profilePhases are the phases of a profile by the events that they are made of.
var profilePhases = map[EventKind]string{
	EventDeclared: "declare", EventConfigured: "configure", EventSelected: "select", EventValidated: "validate",
	EventBuilt: "build", EventConstructed: "constructor", EventHookStarted: "hook", EventStarted: "start", EventTermEntered: "start",
}

// record adds an entry for an event of the start.
func (p *profile) record(e Event) {
	const ms = float64(time.Millisecond)
	p.mu.Lock()
	defer p.mu.Unlock()
	phase := profilePhases[e.Kind]
	if phase == "" || len(p.entries) >= profileLimit {
		return
	}
	p.entries = append(p.entries, ProfileEntry{
		Phase: phase, Name: e.Name, Term: e.Term,
		AtMS: float64(e.At.Sub(p.began)-e.Took) / ms, MS: float64(e.Took) / ms,
	})
}

func (p *profile) write(file string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	text, err := json.MarshalIndent(p.entries, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
