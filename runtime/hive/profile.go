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

// time measures until the returned function is called.
func (p *profile) time(phase, term string) func() {
	began := time.Now()
	return func() { p.add(phase, "", term, time.Since(began)) }
}

// profileLimit is how many entries are kept: a process that enters its term
// again and again is not starting any more.
const profileLimit = 2000

// add records something that has just ended.
func (p *profile) add(phase, name, term string, took time.Duration) {
	const ms = float64(time.Millisecond)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.entries) >= profileLimit {
		return
	}
	p.entries = append(p.entries, ProfileEntry{
		Phase: phase, Name: name, Term: term,
		AtMS: float64(time.Since(p.began)-took) / ms, MS: float64(took) / ms,
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
