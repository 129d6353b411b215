// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package faultproxy

import (
	"fmt"
	"sync"

	"github.com/skep-operator/skep/resources/clustertest/control"
)

// link is the state of a proxy's TCP side, shared by its connections.
type link struct {
	mu      sync.Mutex
	state   control.Link
	changed chan struct{} // closed and replaced at each change
}

func newLink(state control.Link) *link {
	return &link{state: state, changed: make(chan struct{})}
}

// get returns the state and a channel that is closed when it is outdated.
func (l *link) get() (control.Link, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state, l.changed
}

func (l *link) set(state control.Link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = state
	close(l.changed)
	l.changed = make(chan struct{})
}

func validateLink(state control.Link) error {
	for name, d := range map[string]control.Direction{"up": state.Up, "down": state.Down} {
		if d.Delay < 0 || d.Jitter < 0 || d.BytesPerSecond < 0 || d.CutAfter < 0 {
			return fmt.Errorf("link %s: values must not be negative: %+v", name, d)
		}
	}
	return nil
}
