// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package sweep

import (
	"context"
	"fmt"

	"github.com/skep-operator/skep/resources/plan"
)

// In a plan sweeps wait for simulated time. It is moved on for a sweep as long as
// something may come of another one: a candidate waits for its next sighting or
// its grace, something was planned since the last sweep began, or somebody asked
// for one.

// planned is what a sweep remembers for a plan. It is guarded by the sweep's
// lock.
type planned[K comparable] struct {
	generation uint64
	judged     map[K]struct{} // candidates of this generation that came to their end
	wanted     bool
	failures   int // in a row
	last       error
}

// enoughFailures is how often in a row a sweep fails before it is said to.
const enoughFailures = 3

func (s *Sweep[K, T]) beginPlanned() {
	p := s.scope.Plan
	if p == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := p.Generation(); s.planned.judged == nil || now != s.planned.generation {
		s.planned.generation, s.planned.judged = now, map[K]struct{}{}
	}
	s.planned.wanted = false
}

func (s *Sweep[K, T]) endPlanned(err error) {
	s.scope.Plan.Moved()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.planned.last = err
	s.planned.failures++
	if err == nil || isBrake(err) {
		s.planned.failures = 0
	}
}

func (s *Sweep[K, T]) wantPlanned() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.planned.wanted = true
}

// judgePlanned says of candidates that they are looked after in this generation,
// whatever comes of it.
func (s *Sweep[K, T]) judgePlanned(all ...Candidate[K, T]) {
	if s.scope.Plan == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range all {
		s.planned.judged[c.Key] = struct{}{}
	}
}

// needed reports whether something may come of another sweep.
func (s *Sweep[K, T]) needed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &s.planned
	if p.wanted || p.failures > 0 && p.failures < enoughFailures || p.generation != s.scope.Plan.Generation() {
		return true
	}
	for key := range s.seen {
		if _, judged := p.judged[key]; !judged {
			return p.failures == 0
		}
	}
	return false
}

// load is what the sweep could not plan.
func (s *Sweep[K, T]) load() (load plan.Load) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.planned.last != nil {
		load.Waiting = append(load.Waiting, fmt.Sprintf("%s: %v", s.rule, s.planned.last))
	}
	return load
}

// awaitRate waits for the next delete's turn, for which a plan has no use.
func (s *Sweep[K, T]) awaitRate(ctx context.Context) error {
	if s.scope.Plan != nil {
		return ctx.Err()
	}
	return s.spec.Rate.Wait(ctx)
}
