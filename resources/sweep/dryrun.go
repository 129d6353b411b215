// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package sweep

import (
	"context"
	"fmt"

	"github.com/skep-operator/skep/resources/dryrun"
)

// In a plan sweeps wait for simulated time. It is moved on for a sweep as long as
// something may come of another one: a candidate waits for its next sighting or
// its grace, something was planned since the last sweep began, or a sweep was
// requested.

// dryRunState is what a sweep remembers for a plan. It is guarded by the sweep's
// lock.
type dryRunState[K comparable] struct {
	generation uint64
	processed  map[K]struct{} // candidates of this generation that came to their end
	wanted     bool
	failures   int // in a row
	last       error
}

// reportedFailures is how often in a row a sweep fails before the plan reports it.
const reportedFailures = 3

func (s *Sweep[K, T]) beginDryRun() {
	p := s.deps.Plan
	if p == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := p.Generation(); s.planned.processed == nil || now != s.planned.generation {
		s.planned.generation, s.planned.processed = now, map[K]struct{}{}
	}
	s.planned.wanted = false
}

func (s *Sweep[K, T]) endDryRun(err error) {
	s.deps.Plan.Moved()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.planned.last = err
	s.planned.failures++
	if err == nil || isLimited(err) {
		s.planned.failures = 0
	}
}

func (s *Sweep[K, T]) requestDryRun() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.planned.wanted = true
}

// markProcessed records that candidates were processed in this generation, with any
// outcome.
func (s *Sweep[K, T]) markProcessed(all ...Candidate[K, T]) {
	if s.deps.Plan == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range all {
		s.planned.processed[c.Key] = struct{}{}
	}
}

// needed reports whether something may come of another sweep.
func (s *Sweep[K, T]) needed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &s.planned
	if p.wanted || p.failures > 0 && p.failures < reportedFailures || p.generation != s.deps.Plan.Generation() {
		return true
	}
	for key := range s.seen {
		if _, processed := p.processed[key]; !processed {
			return p.failures == 0
		}
	}
	return false
}

// load is what the sweep could not plan.
func (s *Sweep[K, T]) load() (load dryrun.Load) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.planned.last != nil {
		load.Failed = append(load.Failed, fmt.Sprintf("%s: %v", s.rule, s.planned.last))
	}
	return load
}

// awaitRate waits for the turn of so many deletes, for which a plan has no use.
func (s *Sweep[K, T]) awaitRate(ctx context.Context, deletes int) error {
	for range deletes {
		if s.deps.Plan != nil {
			break
		}
		if err := s.spec.Rate.Wait(ctx); err != nil {
			return err
		}
	}
	return ctx.Err()
}
