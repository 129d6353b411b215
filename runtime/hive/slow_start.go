// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive

import (
	"fmt"
	"sync"
	"time"

	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// slowStartAfter is how long the start of a hook may take before the hook is
// degraded.
const slowStartAfter = 5 * time.Second

// slowStarts degrades hooks that are slow to start, until they have started or
// failed.
type slowStarts struct {
	scope *scope

	mu      sync.Mutex
	pending map[string]*slowStart // by step
}

// slowStart is a hook that is starting.
type slowStart struct {
	timer *time.Timer
	end   func() // removes the report; nil before there is one
}

func (s *slowStarts) observe(e lifecycle.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !e.Done {
		w := &slowStart{}
		w.timer = time.AfterFunc(slowStartAfter, func() { s.report(e.Step, w) })
		s.pending[e.Step] = w
		return
	}
	w := s.pending[e.Step]
	delete(s.pending, e.Step)
	w.timer.Stop()
	if w.end != nil {
		w.end()
	}
}

func (s *slowStarts) report(step string, w *slowStart) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending[step] != w {
		return // it has started meanwhile
	}
	var reporter health.Reporter
	reporter, w.end = s.scope.hive.health.Open(step)
	reporter.Degraded(fmt.Sprintf("is starting for more than %s", slowStartAfter), nil)
	s.scope.hive.emit(Event{Kind: EventHookSlow, Name: step, Term: s.scope.name()})
}
