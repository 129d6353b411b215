// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"runtime/pprof"
	"time"

	"github.com/skep-operator/skep/runtime/internal/stacks"
)

// Grace is how long after its deadline a hook is waited for before it counts as
// hanging.
const Grace = 5 * time.Second

// run runs one phase of one step under its deadline.
func (r *Runner) run(ctx context.Context, i int, phase Phase) error {
	if phase == Starting && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	step := r.steps[i]
	timeout := step.StartTimeout
	if phase == Stopping {
		timeout = step.StopTimeout
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout,
			fmt.Errorf("%s of %s took longer than its %s", phase, step.ID, timeout))
		defer cancel()
	}
	r.observe(Event{Step: step.ID, Index: i, Phase: phase})
	began := time.Now()
	err := runUnderGrace(ctx, step, phase)
	if err != nil && !errors.As(err, new(*HangError)) {
		err = withCause(ctx, err)
	}
	r.observe(Event{Step: step.ID, Index: i, Phase: phase, Done: true, Took: time.Since(began), Err: err})
	return err
}

// withCause adds the cause of the end of ctx to an error that does not have it.
func withCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w (%w)", err, cause)
	}
	return err
}

// runUnderGrace runs a hook, and leaves it behind when it does not return within
// the grace after the end of ctx.
func runUnderGrace(ctx context.Context, step Step, phase Phase) error {
	do := step.Hook.Start
	if phase == Stopping {
		do = step.Hook.Stop
	}
	label := step.ID + " " + string(phase)
	done := make(chan error, 1)
	go func() {
		err := errExited
		defer func() { done <- err }()
		pprof.Do(ctx, pprof.Labels("hook", label), func(ctx context.Context) { err = recovered(ctx, do) })
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	patience := time.NewTimer(Grace)
	defer patience.Stop()
	select {
	case err := <-done:
		return err
	case <-patience.C:
	}
	hang := &HangError{Step: step.ID, Phase: phase, Stack: stacks.Hanging(guard, "hook", label)}
	if phase == Starting {
		go stopLate(ctx, step, done)
	}
	return hang
}

// stopLate stops a hook that started after it counted as hanging.
func stopLate(ctx context.Context, step Step, started <-chan error) {
	if <-started == nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Grace)
		defer cancel()
		_ = recovered(ctx, step.Hook.Stop) // the failure of the start was returned already
	}
}

var errExited = errors.New("the hook ended its goroutine instead of returning")

// guard is the name of recovered, below which a hook's own frames begin.
var guard = reflect.TypeFor[Runner]().PkgPath() + ".recovered"

func recovered(ctx context.Context, do func(context.Context) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = AsPanic(v, debug.Stack())
		}
	}()
	return do(ctx)
}
