// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package job

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/skep-operator/skep/runtime/health"
)

// Group runs the jobs of one module.
type Group interface {
	// Add runs a job until it is done or the module stops. The name is unique
	// in the module while the job runs, and part of its health path and metric
	// labels. Jobs added before the module starts begin with it; jobs added
	// after it stopped are not run. It is safe for concurrent use, also from a
	// running job.
	Add(name string, j Job)
}

// Hooks is what a group tells its surroundings. Nil functions are not called.
type Hooks struct {
	// Ran is told about every run.
	Ran func(name string, took time.Duration, err error)
	// Panicked is told about a job that panicked and has ended because of it.
	Panicked func(name string, value any, stack []byte)
	// Shutdown is called when a job marked ShutdownOnError has failed.
	Shutdown func(error)
}

// NewGroup returns a group that is not started.
func NewGroup(module string, log *slog.Logger, h health.Reporter, hooks Hooks) *Runner {
	return &Runner{module: module, log: log, health: h, hooks: hooks}
}

// Runner is a Group that can be started and stopped; the runtime owns it.
type Runner struct {
	module string
	log    *slog.Logger
	health health.Reporter
	hooks  Hooks

	mu      sync.Mutex
	ctx     context.Context // nil before Start
	cancel  context.CancelFunc
	pending []pending
	jobs    sync.WaitGroup
}

type pending struct {
	name string
	job  Job
}

// Add implements Group.
func (g *Runner) Add(name string, j Job) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ctx == nil {
		g.pending = append(g.pending, pending{name, j})
		return
	}
	g.spawn(g.ctx, name, j)
}

// Start runs what was added so far and what will be.
func (g *Runner) Start(context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ctx, g.cancel = context.WithCancel(context.Background())
	for _, p := range g.pending {
		g.spawn(g.ctx, p.name, p.job)
	}
	g.pending = nil
	return nil
}

// Stop ends all jobs and waits for them, or until ctx ends.
func (g *Runner) Stop(ctx context.Context) error {
	g.mu.Lock()
	g.cancel()
	g.mu.Unlock()
	return wait(ctx, &g.jobs)
}

// Hook is a job as something that starts and stops by itself, with the health
// report and the metrics of its group.
func (g *Runner) Hook(name string, j Job) *Single { return &Single{group: g, name: name, job: j} }

// Single is a job that starts and stops by itself. It implements
// lifecycle.Hook.
type Single struct {
	group  *Runner
	name   string
	job    Job
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// Start runs the job.
func (s *Single) Start(context.Context) error {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.done.Go(func() { s.group.runJob(ctx, s.name, s.job) })
	return nil
}

// Stop ends the job and waits for it, or until ctx ends.
func (s *Single) Stop(ctx context.Context) error {
	s.cancel()
	return wait(ctx, &s.done)
}

// spawn is called with the lock held.
func (g *Runner) spawn(ctx context.Context, name string, j Job) {
	if ctx.Err() == nil {
		g.jobs.Go(func() { g.runJob(ctx, name, j) })
	}
}

func (g *Runner) runJob(ctx context.Context, name string, j Job) {
	r := &running{group: g, name: name, health: g.health.Part("job-" + name), shutdown: j.options.shutdown}
	defer func() {
		if v := recover(); v != nil {
			r.panicked(v, debug.Stack())
		}
	}()
	pprof.Do(ctx, pprof.Labels("module", g.module, "job", name), func(ctx context.Context) {
		r.health.OK("")
		j.loop(ctx, r)
	})
	if ctx.Err() != nil {
		r.health.Gone()
	}
}

func wait(ctx context.Context, wg *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// running is one job in a group.
type running struct {
	group    *Runner
	name     string
	health   health.Reporter
	shutdown bool
	failing  bool
}

// run does one run and measures it.
func (r *running) run(ctx context.Context, do func(context.Context) error) error {
	began := time.Now()
	err := do(ctx)
	if r.group.hooks.Ran != nil {
		r.group.hooks.Ran(r.name, time.Since(began), err)
	}
	if err == nil {
		r.failing = false
	}
	return err
}

// degraded reports a failure; in the log only the first of a row is a warning.
func (r *running) degraded(what string, err error) {
	r.health.Degraded(what, err)
	level := slog.LevelDebug
	if !r.failing {
		level = slog.LevelWarn
	}
	r.failing = true
	r.group.log.Log(context.Background(), level, "job failed", "job", r.name, "error", err)
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
