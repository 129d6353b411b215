// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package panics

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// Memory is what the modules of a process remember of objects whose handling panicked, beyond their rebuilds and terms. It is
// safe for concurrent use.
type Memory struct {
	count   atomic.Int64 // of the entries
	mu      sync.Mutex
	entries map[id]*Error
}

// id is an object of a rule, by its text: keys of different terms need not be of one type.
type id struct{ rule, key string }

// NewMemory returns an empty memory.
func NewMemory() *Memory { return &Memory{entries: map[id]*Error{}} }

const (
	firstPause   = time.Second
	longestPause = 5 * time.Minute
	// forgetAfter is how long after its pause an object is remembered that is not handled again: it may be deleted.
	forgetAfter = 10 * time.Minute
)

// record counts a panic, and returns a copy of what is remembered.
func (m *Memory) record(of id, e Error, now time.Time) *Error {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.entries, func(_ id, e *Error) bool { return now.Sub(e.until) > forgetAfter })
	e.Times, e.Pause = 1, firstPause
	if was := m.entries[of]; was != nil {
		e.Times, e.Pause = was.Times+1, min(2*was.Pause, longestPause)
		e.isNews = was.Place != e.Place
	}
	e.until = now.Add(e.Pause)
	m.entries[of] = &e
	m.count.Store(int64(len(m.entries)))
	return &e
}

// last returns what is remembered of an object, nil for nothing.
func (m *Memory) last(of id) *Error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.entries[of]
}

func (m *Memory) forget(of id) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.entries, of)
	m.count.Store(int64(len(m.entries)))
}
