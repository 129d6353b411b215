// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strings"
	"time"
)

// Step is a hook with its place in the order.
type Step struct {
	ID    string // module id and name of the hook
	Hook  Hook
	After []int // steps that must have started, as indices
	// Behind are steps that must have been tried before; whether they started
	// does not matter.
	Behind []int

	StartTimeout, StopTimeout time.Duration // 0: no limit but the caller's
}

// Event tells an observer what a step did. Took is set at the end of it.
type Event struct {
	Step  string
	Phase Phase
	Done  bool
	Took  time.Duration
	Err   error
}

// Phase is what a step is at.
type Phase string

const (
	Starting Phase = "start"
	Stopping Phase = "stop"
)

// Grace is how long after its deadline a hook is waited for before it is given
// up as hanging.
const Grace = 5 * time.Second

// HangError says that a hook did not return although its context had ended.
// The hook's goroutine is left behind.
type HangError struct {
	Step  string
	Phase Phase
	Stack string // where the hook's goroutine stands
}

func (e *HangError) Error() string {
	return fmt.Sprintf("%s of %s hangs; it stands at:\n%s", e.Phase, e.Step, e.Stack)
}

// PanicError says that a hook panicked.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.Value, e.Stack) }

// Failure is a step that did not start or stop as it should. Its Err is
// ErrBlocked where the fault is that of a step before it.
type Failure struct {
	Step int
	Err  error
}

// ErrBlocked marks steps that were not started because a step that they come
// after failed.
var ErrBlocked = errors.New("not started: what it comes after failed")

// Runner starts and stops steps. Its methods must not run concurrently.
type Runner struct {
	steps   []Step
	before  [][]int // the reverse of After and Behind
	started []bool
	observe func(Event)
	grace   time.Duration
}

// NewRunner returns a runner in which nothing is started. observe may be nil;
// it is called from several goroutines.
func NewRunner(steps []Step, observe func(Event)) *Runner {
	r := &Runner{steps: steps, before: make([][]int, len(steps)), started: make([]bool, len(steps)), observe: observe, grace: Grace}
	for i := range steps {
		for _, a := range r.waits(i) {
			r.before[a] = append(r.before[a], i)
		}
	}
	return r
}

func (r *Runner) waits(i int) []int {
	return slices.Concat(r.steps[i].After, r.steps[i].Behind)
}

// SetHook puts another hook in the place of a step that is not started.
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

// Start starts those of the given steps that do not run yet. It returns when
// all have started or failed; what it started stays up, also when others
// failed.
func (r *Runner) Start(ctx context.Context, subset []int) []Failure {
	todo := map[int]bool{}
	for _, i := range subset {
		if !r.started[i] {
			todo[i] = true
		}
	}
	return r.walk(ctx, todo, Starting, r.waits, func(i int) []int { return r.before[i] })
}

// Stop stops those of the given steps that run. Every one is tried, whatever
// happens to the others; afterwards none counts as running.
func (r *Runner) Stop(ctx context.Context, subset []int) []Failure {
	todo := map[int]bool{}
	for _, i := range subset {
		if r.started[i] {
			todo[i] = true
		}
	}
	return r.walk(ctx, todo, Stopping, func(i int) []int { return r.before[i] }, r.waits)
}

// walk runs one phase of the steps in todo, each when those it waits for are
// through.
func (r *Runner) walk(ctx context.Context, todo map[int]bool, phase Phase, waitsFor, unblocks func(int) []int) []Failure {
	type outcome struct {
		step int
		err  error
	}
	outcomes := make(chan outcome)
	waiting := map[int]int{}
	running := 0
	run := func(i int) {
		running++
		go func() { outcomes <- outcome{i, r.run(ctx, i, phase)} }()
	}
	blocked := map[int]bool{}
	for i := range r.steps { // in order, so that ties start in declaration order
		if !todo[i] {
			continue
		}
		for _, w := range waitsFor(i) {
			switch {
			case todo[w]:
				waiting[i]++
			case phase == Starting && !r.started[w] && slices.Contains(r.steps[i].After, w):
				blocked[i] = true
			}
		}
		if waiting[i] == 0 && !blocked[i] {
			run(i)
		}
	}
	var failures []Failure
	for running > 0 {
		o := <-outcomes
		running--
		r.started[o.step] = phase == Starting && o.err == nil
		if o.err != nil {
			failures = append(failures, Failure{o.step, o.err})
		}
		for _, next := range unblocks(o.step) {
			if !todo[next] {
				continue
			}
			waiting[next]--
			if phase == Starting && o.err != nil && slices.Contains(r.steps[next].After, o.step) {
				blocked[next] = true
			}
			if waiting[next] == 0 && !blocked[next] {
				run(next)
			}
		}
	}
	if phase == Starting {
		for i := range r.steps {
			failed := slices.ContainsFunc(failures, func(f Failure) bool { return f.Step == i })
			if todo[i] && !r.started[i] && !failed {
				failures = append(failures, Failure{i, ErrBlocked})
			}
		}
	}
	return failures
}

// run runs one phase of one step under its deadline.
func (r *Runner) run(ctx context.Context, i int, phase Phase) error {
	if phase == Starting && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	step := r.steps[i]
	timeout, do := step.StartTimeout, step.Hook.Start
	if phase == Stopping {
		timeout, do = step.StopTimeout, step.Hook.Stop
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout,
			fmt.Errorf("%s of %s took longer than its %s", phase, step.ID, timeout))
		defer cancel()
	}
	r.emit(Event{Step: step.ID, Phase: phase})
	began := time.Now()
	err := r.watch(ctx, step.ID, phase, do)
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("%w (%w)", err, context.Cause(ctx))
	}
	r.emit(Event{Step: step.ID, Phase: phase, Done: true, Took: time.Since(began), Err: err})
	return err
}

// watch calls do and gives it up when it does not return after ctx has ended.
func (r *Runner) watch(ctx context.Context, id string, phase Phase, do func(context.Context) error) error {
	done := make(chan error, 1)
	label := id + " " + string(phase)
	go pprof.Do(ctx, pprof.Labels("hook", label), func(ctx context.Context) {
		done <- recovered(ctx, do)
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	patience := time.NewTimer(r.grace)
	defer patience.Stop()
	select {
	case err := <-done:
		return err
	case <-patience.C:
		return &HangError{Step: id, Phase: phase, Stack: stackOf(label)}
	}
}

func recovered(ctx context.Context, do func(context.Context) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return do(ctx)
}

func (r *Runner) emit(e Event) {
	if r.observe != nil {
		r.observe(e)
	}
}

// stackOf finds the goroutine that carries the label in the profile of all.
func stackOf(label string) string {
	var all strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
		return "unknown: " + err.Error()
	}
	for record := range strings.SplitSeq(all.String(), "\n\n") {
		if !strings.Contains(record, fmt.Sprintf("%q", label)) {
			continue
		}
		var frames []string
		for line := range strings.SplitSeq(record, "\n") {
			if fields := strings.Split(line, "\t"); len(fields) > 3 && strings.HasPrefix(line, "#") {
				frames = append(frames, "  "+strings.TrimSpace(fields[2])+" "+strings.TrimSpace(fields[len(fields)-1]))
			}
		}
		return strings.Join(frames, "\n")
	}
	return "unknown"
}
