// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lifecycle

import (
	"context"
	"slices"
)

// walk is one phase of some of the steps.
type walk struct {
	*Runner
	ctx       context.Context
	phase     Phase
	successor [][]int
	todo      []bool
	waiting   []int  // number of steps that a step waits for
	blocked   []bool // a step that it comes after did not start
	outcomes  chan Failure
	running   int
	failures  []Failure
}

// walk runs a phase of the steps that need it, each when those it waits for are
// finished.
func (r *Runner) walk(ctx context.Context, phase Phase, subset []int, waits, waiters [][]int) []Failure {
	n := len(r.steps)
	w := &walk{
		Runner: r, ctx: ctx, phase: phase, successor: waiters,
		todo: make([]bool, n), waiting: make([]int, n), blocked: make([]bool, n), outcomes: make(chan Failure),
	}
	for _, i := range subset {
		w.todo[i] = r.started[i] == (phase == Stopping)
	}
	for i := range r.steps {
		if w.todo[i] {
			w.prepare(i, waits[i])
		}
	}
	for i := range r.steps {
		if w.todo[i] && w.waiting[i] == 0 {
			w.advance(i)
		}
	}
	for w.running > 0 {
		o := <-w.outcomes
		w.running--
		w.finish(o.Step, o.Err)
	}
	slices.SortFunc(w.failures, func(a, b Failure) int { return a.Step - b.Step })
	return w.failures
}

func (w *walk) prepare(i int, waits []int) {
	for _, other := range waits {
		switch {
		case w.todo[other]:
			w.waiting[i]++
		case w.needs(i, other) && !w.started[other]:
			w.blocked[i] = true
		}
	}
}

// needs reports whether a step cannot start without another.
func (w *walk) needs(i, other int) bool {
	return w.phase == Starting && slices.Contains(w.steps[i].After, other)
}

// advance runs a step whose predecessors are finished, or skips it if it is
// blocked.
func (w *walk) advance(i int) {
	w.todo[i] = false
	if w.blocked[i] {
		w.finish(i, ErrBlocked)
		return
	}
	w.running++
	go func() { w.outcomes <- Failure{i, w.run(w.ctx, i, w.phase)} }()
}

// finish records the outcome of a step and advances those that waited for it.
func (w *walk) finish(i int, err error) {
	w.started[i] = w.phase == Starting && err == nil
	if err != nil {
		w.failures = append(w.failures, Failure{i, err})
	}
	for _, next := range w.successor[i] {
		if !w.todo[next] {
			continue
		}
		w.waiting[next]--
		if err != nil && w.needs(next, i) {
			w.blocked[next] = true
		}
		if w.waiting[next] == 0 {
			w.advance(next)
		}
	}
}
