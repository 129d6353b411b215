// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	done  chan struct{} // closed when the run begun last is over; nil before
}

// launch runs the job until it ends, and tells ended if it came to its end.
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

// run reports whether the job came to its end, rather than to be stopped or to
// panic.
func (t *task) run(ctx context.Context) (ended bool) {
	if t.job.loop == nil {
		return true
	}
	r := &running{group: t.group, name: t.name, health: t.group.health.Part("job-" + t.name), shutdown: t.job.options.shutdown}
	defer func() {
		if v := recover(); v != nil {
			r.panicked(v, debug.Stack())
		}
	}()
	pprof.Do(ctx, pprof.Labels("module", t.group.module, "job", t.name), func(ctx context.Context) {
		r.health.OK("")
		t.job.loop(health.NewContext(ctx, r.health), r)
	})
	if ctx.Err() != nil {
		r.health.Gone()
		return false
	}
	return true
}

// wait waits until the job is over or ctx ends.
func (t *task) wait(ctx context.Context) error {
	select {
	case <-t.done:
		return nil
	default:
	}
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return &lifecycle.HangError{
			Step: t.group.module + ".job-" + t.name, Phase: lifecycle.Stopping,
			Stack: stacks.Hanging(guard, "job", t.name, "module", t.group.module),
		}
	}
}

// guard is the name of running.run, below which a job's own frames begin.
var guard = reflect.TypeFor[running]().PkgPath() + ".(*running).run"

// running is a job while it runs.
type running struct {
	group    *Runner
	name     string
	health   health.Reporter
	shutdown bool
	failing  bool
}

// run does one run and measures it. alive is false when the job is told to
// stop.
func (r *running) run(ctx context.Context, do func(context.Context) error) (err error, alive bool) {
	began := time.Now()
	outcome := errPanicked // if do does not return
	defer func() { r.ran(began, outcome) }()
	err = do(ctx)
	if ctx.Err() != nil {
		outcome = nil
		return err, false
	}
	outcome = err
	if err == nil {
		r.failing = false
	}
	return err, true
}

// steady is how long a run has to go on after one that failed until it is well.
const steady = 5 * time.Second

// again is run after a failure, which is over once it goes on: a run that is well
// may be meant never to end.
func (r *running) again(ctx context.Context, do func(context.Context) error) (err error, alive bool) {
	well := make(chan struct{})
	timer := time.AfterFunc(steady, func() {
		defer close(well)
		r.health.OK("")
	})
	defer func() {
		if !timer.Stop() {
			<-well
			r.failing = false
		}
	}()
	return r.run(ctx, do)
}

var errPanicked = errors.New("panicked")

func (r *running) ran(began time.Time, err error) {
	if r.group.hooks.Ran != nil {
		r.group.hooks.Ran(r.name, time.Since(began), err)
	}
}

// degraded reports a failure; in the log only the first of a row is a warning.
func (r *running) degraded(what string, err error) {
	r.health.Degraded(what, err)
	level := slog.LevelDebug
	if !r.failing {
		level = slog.LevelWarn
	}
	r.failing = true
	r.group.log.Log(context.Background(), level, "job failed", "job", r.name, "what", what, "error", err)
}

// fail reports a failure that is not tried again.
func (r *running) fail(err error) {
	r.failing = false
	r.degraded("failed for good", err)
	if r.shutdown && r.group.hooks.Shutdown != nil {
		r.group.hooks.Shutdown(fmt.Errorf("job %s of %s: %w", r.name, r.group.module, err))
	}
}

func (r *running) panicked(value any, stack []byte) {
	r.health.Degraded("panicked", fmt.Errorf("%v", value))
	if r.group.hooks.Panicked != nil {
		r.group.hooks.Panicked(r.name, value, stack)
	}
}
