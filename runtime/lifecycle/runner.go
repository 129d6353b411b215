// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lifecycle

import (
	"context"
	"slices"
	"time"
)

// Step is a hook and its edges.
type Step struct {
	ID    string // module id and name of the hook
	Hook  Hook
	After []int // steps that must have started, as indices
	// Behind are steps that must have been attempted before, with or without
	// success.
	Behind []int

	StartTimeout, StopTimeout time.Duration // 0: no limit but the caller's
}

// Event is the begin or the end of a phase of a step.
type Event struct {
	Step  string
	Index int // of the step
	Phase Phase
	Done  bool
	Took  time.Duration // of a phase that is done
	Err   error
}

// Phase is the start or the stop of a step.
type Phase string

const (
	Starting Phase = "start"
	Stopping Phase = "stop"
)

// Runner starts and stops steps. Its methods must not run concurrently.
type Runner struct {
	steps   []Step
	waits   [][]int // After and Behind
	waiters [][]int // the reverse
	started []bool
	observe func(Event)
}

// NewRunner returns a runner in which nothing is started. observe may be nil;
// it is called from several goroutines.
func NewRunner(steps []Step, observe func(Event)) *Runner {
	if observe == nil {
		observe = func(Event) {}
	}
	r := &Runner{
		steps: steps, waits: make([][]int, len(steps)), waiters: make([][]int, len(steps)),
		started: make([]bool, len(steps)), observe: observe,
	}
	for i, s := range steps {
		r.waits[i] = slices.Concat(s.After, s.Behind)
		for _, w := range r.waits[i] {
			r.waiters[w] = append(r.waiters[w], i)
		}
	}
	return r
}

// SetHook replaces the hook of a step that is not started.
func (r *Runner) SetHook(step int, h Hook) { r.steps[step].Hook = h }

// Started reports whether a step runs.
func (r *Runner) Started(step int) bool { return r.started[step] }

// All is the index of every step.
func (r *Runner) All() []int {
	all := make([]int, len(r.steps))
	for i := range all {
		all[i] = i
	}
	return all
}

// Start starts those of the given steps that are not started yet. It returns when
// all have started or failed; those that started stay up, also when others
// failed. Failures are in the order of the steps.
func (r *Runner) Start(ctx context.Context, subset []int) []Failure {
	return r.walk(ctx, Starting, subset, r.waits, r.waiters)
}

// Stop stops those of the given steps that are started. Each is attempted
// whether or not others fail; afterwards none counts as started. Failures are in
// the order of the steps.
func (r *Runner) Stop(ctx context.Context, subset []int) []Failure {
	return r.walk(ctx, Stopping, subset, r.waiters, r.waits)
}
