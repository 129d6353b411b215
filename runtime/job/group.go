// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package job

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// Group runs the jobs of one module.
type Group interface {
	// Add runs a job until it is done or the module stops. The name is unique
	// in the module while the job runs, and part of its health path and metric
	// labels: choose it from a small set. Jobs added before the module starts
	// begin with it; jobs added after it stopped are not run. It is safe for
	// concurrent use, also from a running job.
	Add(name string, j Job)
}

// Hooks are the callbacks of a group. Nil functions are not called.
type Hooks struct {
	// Ran is called after every run.
	Ran func(Run)
	// Failed is called after a run that failed, with what the job does next.
	// repeated is true where the run before failed, too.
	Failed func(name, action string, repeated bool, err error)
	// Panicked is called when a job has ended with a panic.
	Panicked func(name string, value any, stack []byte)
}

// Run is what came of one run of a job.
type Run struct {
	Job  string // its name
	Kind Kind
	Took time.Duration
	Err  error // nil if the run was stopped
}

// Runner is a Group that can be started and stopped, again and again; the
// runtime owns it. Start and Stop must not overlap.
type Runner struct {
	module string
	health health.Reporter
	hooks  Hooks

	mu    sync.Mutex
	ctx   context.Context // nil before Start
	stop  context.CancelFunc
	tasks []*task // that have not completed
}

// NewGroup returns a group that is not started.
func NewGroup(module string, h health.Reporter, hooks Hooks) *Runner {
	return &Runner{module: module, health: h, hooks: hooks}
}

// Add implements Group.
func (g *Runner) Add(name string, j Job) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := &task{group: g, name: name, job: j}
	g.tasks = append(g.tasks, t)
	if g.ctx != nil && g.ctx.Err() == nil {
		t.launch(g.ctx, g.ended)
	}
}

// Start runs the jobs added so far and those added later. After a Stop it runs
// jobs again that had not completed, and those that panicked.
func (g *Runner) Start(context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ctx, g.stop = context.WithCancel(context.Background())
	for _, t := range g.tasks {
		t.launch(g.ctx, g.ended)
	}
	return nil
}

// ended removes a task that has completed.
func (g *Runner) ended(t *task) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tasks = slices.DeleteFunc(g.tasks, func(other *task) bool { return other == t })
}

// Stop ends all jobs and waits for them. What still runs when ctx ends, two
// seconds after Stop was called at the earliest, is left behind; the error has a
// lifecycle.HangError for each.
func (g *Runner) Stop(ctx context.Context) error {
	g.mu.Lock()
	if g.stop == nil {
		g.mu.Unlock()
		return nil
	}
	requested := time.Now()
	g.stop()
	running := slices.Clone(g.tasks)
	g.mu.Unlock()
	var errs []error
	for _, t := range running {
		if t.done != nil { // one added after the stop is not running
			errs = append(errs, t.wait(ctx, requested))
		}
	}
	return errors.Join(errs...)
}

// Hook is a job that starts and stops by itself, with the health report and the
// metrics of its group. Its Stop waits as that of the group does.
func (g *Runner) Hook(name string, j Job) lifecycle.Hook {
	return &jobHook{task: task{group: g, name: name, job: j}}
}
