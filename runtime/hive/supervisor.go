// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/skep-operator/skep/runtime/internal/backoff"
	"github.com/skep-operator/skep/runtime/internal/build"
	"github.com/skep-operator/skep/runtime/internal/resolve"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// supervisor rebuilds modules that panicked or did not start.
//
// Half-written state of a module is dropped with it: the module is stopped at
// once, and its constructors run again with those of the modules that use its
// values. In the process, where other modules keep these values, only its jobs
// run again.
type supervisor struct {
	scope *scope
	wg    sync.WaitGroup

	ctx     context.Context // ends when no further rebuild begins
	cancel  context.CancelFunc
	stopCtx context.Context // ends when hooks that are stopping are no longer waited for
	abort   context.CancelFunc

	mu     sync.Mutex
	queue  []failure
	closed bool
	wake   chan struct{}

	// Guarded by scope.mu:
	backoffs map[*resolve.Module]*backoffState
	reports  map[*resolve.Module]*startReport
}

// failure is a module that panicked or did not start.
type failure struct {
	module   *resolve.Module
	err      error
	instance *moduleInstance // of a job that panicked
}

// backoffState is the history of a module that failed.
type backoffState struct {
	failures int // in a row
	lastTry  time.Time
	nextTry  time.Time // zero when no rebuild is scheduled
}

// pending reports whether a rebuild is scheduled.
func (s *backoffState) pending() bool { return !s.nextTry.IsZero() }

func newSupervisor(s *scope) *supervisor {
	v := &supervisor{
		scope: s, wake: make(chan struct{}, 1),
		backoffs: map[*resolve.Module]*backoffState{}, reports: map[*resolve.Module]*startReport{},
	}
	v.ctx, v.cancel = context.WithCancel(context.Background())
	v.stopCtx, v.abort = context.WithCancel(context.Background())
	return v
}

func (v *supervisor) start() { v.wg.Go(v.run) }

// stop returns when no rebuild is under way and none will begin. After the end
// of ctx a rebuild no longer waits for the hooks that it stops.
func (v *supervisor) stop(ctx context.Context) {
	v.cancel()
	stopAbort := context.AfterFunc(ctx, v.abort)
	v.wg.Wait()
	stopAbort()
	v.abort()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed = true
	for _, f := range v.queue {
		v.emitFailure(f)
	}
	v.queue = nil
}

// enqueue queues a failure. It does not block, and may be called from a job.
func (v *supervisor) enqueue(f failure) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		v.emitFailure(f)
		return
	}
	v.queue = append(v.queue, f)
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

// drain empties the queue.
func (v *supervisor) drain() []failure {
	v.mu.Lock()
	defer v.mu.Unlock()
	queue := v.queue
	v.queue = nil
	return queue
}

func (v *supervisor) run() {
	timer := time.NewTimer(0) // the start may have queued failures
	defer timer.Stop()
	for {
		select {
		case <-v.ctx.Done():
			return
		case <-v.wake:
		case <-timer.C:
		}
		if next, ok := v.processQueue(); ok {
			timer.Reset(next)
		}
	}
}

// processQueue handles queued failures and runs the rebuilds that are due. It
// returns the time to the next one, if one is scheduled.
func (v *supervisor) processQueue() (next time.Duration, ok bool) {
	v.scope.mu.Lock()
	defer v.scope.mu.Unlock()
	if v.ctx.Err() != nil {
		return 0, false
	}
	v.handleFailures(v.drain())
	var due []*resolve.Module
	for _, m := range v.scope.hive.graph.Modules { // in order
		if s := v.backoffs[m]; s != nil && s.pending() && !s.nextTry.After(time.Now()) {
			due = append(due, m)
		}
	}
	if len(due) > 0 {
		v.rebuild(due)
	}
	for _, s := range v.backoffs {
		if s.pending() && (!ok || time.Until(s.nextTry) < next) {
			next, ok = time.Until(s.nextTry), true
		}
	}
	return next, ok
}

// awaitsRebuild reports whether a module is down until it is rebuilt.
func (v *supervisor) awaitsRebuild(m *resolve.Module) bool {
	s := v.backoffs[m]
	return s != nil && s.pending()
}

// handleFailures schedules the rebuild of modules that failed, and stops those
// that panicked. With scope.mu held.
func (v *supervisor) handleFailures(failures []failure) {
	longest := v.scope.hive.options.rebuildLongest
	for _, f := range failures {
		v.emitFailure(f)
		if f.instance != nil && f.instance != v.scope.modules[f.module] {
			continue // the instance that panicked was torn down meanwhile
		}
		s := v.backoffs[f.module]
		if s == nil {
			s = &backoffState{}
			v.backoffs[f.module] = s
		}
		if s.pending() {
			continue
		}
		if time.Since(s.lastTry) > longest {
			s.failures = 0
		}
		s.failures++
		pause := v.pause(s.failures, f.err)
		s.nextTry = time.Now().Add(pause)
		v.report(f.module).Degraded(s.describe(pause), f.err)
		if isPanic(f.err) {
			v.stopModules([]*resolve.Module{f.module})
		}
	}
	v.reportBlocked()
}

// freePanics is how many panics in a row are followed by a rebuild at once: the
// cause of a panic is often transient. Where the object that led to it is set
// aside, that has a pause which grows, so that the others need not wait.
const (
	freePanics   = 2
	freeSetAside = 20
)

// pause is the time before the rebuild that follows a number of failures in a
// row.
func (v *supervisor) pause(failures int, err error) (pause time.Duration) {
	switch p := new(lifecycle.PanicError); {
	case errors.As(err, &p) && p.SetAside:
		failures -= freeSetAside
	case isPanic(err):
		failures -= freePanics
	}
	o := &v.scope.hive.options
	pauses := backoff.New(min(o.rebuildFirst, o.rebuildLongest), o.rebuildLongest, 0)
	for range failures {
		pause = pauses.NextBackOff()
	}
	return pause
}

func (s *backoffState) describe(pause time.Duration) string {
	if pause == 0 {
		return "is being rebuilt"
	}
	return fmt.Sprintf("failed %d times in a row; next try in %s", s.failures, pause)
}

func isPanic(err error) bool {
	if errors.As(err, new(*lifecycle.PanicError)) {
		return true
	}
	b := new(build.Error)
	return errors.As(err, &b) && b.Panicked
}

func (v *supervisor) emitFailure(f failure) {
	v.scope.hive.emit(Event{Kind: EventModuleFailed, Module: f.module.Label(), Term: v.scope.name(), Err: f.err})
}
