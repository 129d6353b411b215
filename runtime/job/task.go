// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package job

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"runtime/pprof"
	"time"

	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/internal/stacks"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// task is a job that a group runs.
type task struct {
	group *Runner
	name  string
	job   Job
	done  chan struct{} // closed when the latest run has ended; nil before the first
	left  error         // what the latest run has left behind; to be read when it has ended
}

// launch runs the job, and calls ended if it completes.
func (t *task) launch(ctx context.Context, ended func(*task)) {
	done := make(chan struct{})
	t.done = done
	go func() {
		defer close(done)
		if t.run(ctx) {
			ended(t)
		}
	}()
}

// run reports whether the job completed, rather than being stopped or panicking.
func (t *task) run(ctx context.Context) (ended bool) {
	if t.job.loop == nil {
		return true
	}
	r := &running{group: t.group, name: t.name, kind: t.job.kind, health: t.group.health.Child("job-" + t.name)}
	defer func() {
		t.left = r.left
		if v := recover(); v != nil {
			r.panicked(v, debug.Stack()) // a panic that was handed on has the stack of its place
		}
	}()
	pprof.Do(ctx, pprof.Labels("module", t.group.module, "job", t.name), func(ctx context.Context) {
		r.health.OK("")
		t.job.loop(health.NewContext(ctx, r.health), r)
	})
	if ctx.Err() != nil {
		r.health.Remove()
		return false
	}
	return true
}

// Module is the id of the module of the job that ctx belongs to, or "".
func Module(ctx context.Context) string {
	id, _ := pprof.Label(ctx, "module")
	return id
}

// stopGrace is the least time that a job has to end after its stop was requested:
// another job may have used up the time for stopping.
const stopGrace = 2 * time.Second

// wait waits until the job, whose stop was requested at some time, has ended, or
// ctx and the grace have.
func (t *task) wait(ctx context.Context, requested time.Time) error {
	select {
	case <-t.done:
		return t.left
	case <-ctx.Done():
	}
	timer := time.NewTimer(stopGrace - time.Since(requested))
	defer timer.Stop()
	select {
	case <-t.done:
		return t.left
	case <-timer.C:
	}
	return &lifecycle.HangError{
		Step: t.group.module + ".job-" + t.name, Phase: lifecycle.Stopping,
		Stack: stacks.Hanging(guard, "job", t.name, "module", t.group.module),
	}
}

// guard is the name of running.run, below which a job's own frames begin.
var guard = reflect.TypeFor[running]().PkgPath() + ".(*running).run"

// running is a job while it runs.
type running struct {
	group   *Runner
	name    string
	kind    Kind
	health  health.Reporter
	failing bool
	left    error // lifecycle.HangErrors of goroutines that did not return when the job was stopped
}

// run does one run and measures it. alive is false when the job was stopped.
func (r *running) run(ctx context.Context, do func(context.Context) error) (err error, alive bool) {
	began := time.Now()
	outcome := errPanicked // if do does not return
	defer func() { r.reportRun(began, outcome) }()
	err = do(ctx)
	if ctx.Err() != nil {
		if errors.As(err, new(*lifecycle.HangError)) {
			r.left = err
		}
		outcome = nil
		return err, false
	}
	outcome = err
	if err == nil {
		r.failing = false
	}
	return err, true
}

// stableAfter is how long a run that follows a failure has to last until the job is
// healthy.
const stableAfter = 5 * time.Second

// retryRun is run after a failure. A run that lasts clears the failure: it may be
// meant never to return.
func (r *running) retryRun(ctx context.Context, do func(context.Context) error) (err error, alive bool) {
	cleared := make(chan struct{})
	timer := time.AfterFunc(stableAfter, func() {
		defer close(cleared)
		r.health.OK("")
	})
	defer func() {
		if !timer.Stop() {
			<-cleared
			r.failing = false
		}
	}()
	return r.run(ctx, do)
}

var errPanicked = errors.New("panicked")

func (r *running) reportRun(began time.Time, err error) {
	if r.group.hooks.Ran != nil {
		r.group.hooks.Ran(Run{r.name, r.kind, time.Since(began), err})
	}
}

// degraded reports a failure and what the job does next.
func (r *running) degraded(action string, err error) {
	r.health.Degraded(action, err)
	if r.group.hooks.Failed != nil {
		r.group.hooks.Failed(r.name, action, r.failing, err)
	}
	r.failing = true
}

// fail reports a failure that is not retried.
func (r *running) fail(err error) {
	r.failing = false
	r.degraded("failed for good", err)
}

func (r *running) panicked(value any, stack []byte) {
	r.health.Degraded("panicked", fmt.Errorf("%v", value))
	if r.group.hooks.Panicked != nil {
		r.group.hooks.Panicked(r.name, value, stack)
	}
}
