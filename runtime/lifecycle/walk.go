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
	waiting   []int  // how many of those that a step waits for are not through
	blocked   []bool // a step that it comes after did not start
	outcomes  chan Failure
	running   int
	failures  []Failure
}

// walk runs a phase of the steps that need it, each when those it waits for
// are through.
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
			w.proceed(i)
		}
	}
	for w.running > 0 {
		o := <-w.outcomes
		w.running--
		w.through(o.Step, o.Err)
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

// proceed runs a step for which the way is free, or passes over it.
func (w *walk) proceed(i int) {
	w.todo[i] = false
	if w.blocked[i] {
		w.through(i, ErrBlocked)
		return
	}
	w.running++
	go func() { w.outcomes <- Failure{i, w.run(w.ctx, i, w.phase)} }()
}

// through notes the outcome of a step and lets those go on that waited for it.
func (w *walk) through(i int, err error) {
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
			w.proceed(next)
		}
	}
}
