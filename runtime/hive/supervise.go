// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/skep-operator/skep/runtime/internal/build"
	"github.com/skep-operator/skep/runtime/internal/plan"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// supervisor rebuilds modules that panicked or did not start.
//
// What a module may have left half-written goes away with it: it is taken down
// at once, its constructors run again, and so do those of modules that hold its
// values. In the process, where others hold a module's values for good, only
// its jobs run again.
type supervisor struct {
	scope *scope
	done  sync.WaitGroup

	ctx    context.Context // ends when nothing more is to be rebuilt
	cancel context.CancelFunc
	last   context.Context // ends when what is being stopped is not waited for
	abort  context.CancelFunc

	mu     sync.Mutex
	told   []failure
	closed bool
	wake   chan struct{}

	// Guarded by scope.mu:
	trouble  map[*plan.Module]*trouble
	standing map[*plan.Module]*standing
}

// failure is a module that panicked or did not start.
type failure struct {
	module *plan.Module
	err    error
	room   *room // of a job that panicked
}

// trouble is the history of a module that failed.
type trouble struct {
	inARow int
	last   time.Time // of the last rebuild
	due    time.Time // of the next one; zero when none is planned
}

func newSupervisor(s *scope) *supervisor {
	v := &supervisor{
		scope: s, wake: make(chan struct{}, 1),
		trouble: map[*plan.Module]*trouble{}, standing: map[*plan.Module]*standing{},
	}
	v.ctx, v.cancel = context.WithCancel(context.Background())
	v.last, v.abort = context.WithCancel(context.Background())
	return v
}

func (v *supervisor) start() { v.done.Go(v.run) }

// stop waits until no rebuild is going on and none will begin. When ctx ends, a
// rebuild no longer waits for what it stops.
func (v *supervisor) stop(ctx context.Context) {
	v.cancel()
	hurry := context.AfterFunc(ctx, v.abort)
	v.done.Wait()
	hurry()
	v.abort()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed = true
	for _, f := range v.told {
		v.log(f)
	}
	v.told = nil
}

// tell tells about a module. It does not block, and may be called from a job.
func (v *supervisor) tell(f failure) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		v.log(f)
		return
	}
	v.told = append(v.told, f)
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

func (v *supervisor) take() []failure {
	v.mu.Lock()
	defer v.mu.Unlock()
	told := v.told
	v.told = nil
	return told
}

func (v *supervisor) run() {
	clock := time.NewTimer(0) // something may have failed already
	defer clock.Stop()
	for {
		select {
		case <-v.ctx.Done():
			return
		case <-v.wake:
		case <-clock.C:
		}
		if next, ok := v.turn(); ok {
			clock.Reset(next)
		}
	}
}

// turn looks after all that failed and all that is due, and says when to look
// again.
func (v *supervisor) turn() (next time.Duration, ok bool) {
	v.scope.mu.Lock()
	defer v.scope.mu.Unlock()
	if v.ctx.Err() != nil {
		return 0, false
	}
	v.note(v.take())
	var due []*plan.Module
	for _, m := range v.scope.hive.plan.Modules { // in order
		if t := v.trouble[m]; t != nil && t.waits() && !t.due.After(time.Now()) {
			due = append(due, m)
		}
	}
	if len(due) > 0 {
		v.rebuild(due)
	}
	for _, t := range v.trouble {
		if t.waits() && (!ok || time.Until(t.due) < next) {
			next, ok = time.Until(t.due), true
		}
	}
	return next, ok
}

func (t *trouble) waits() bool { return !t.due.IsZero() }

// waits reports whether a module is down until it is rebuilt.
func (v *supervisor) waits(m *plan.Module) bool {
	t := v.trouble[m]
	return t != nil && t.waits()
}

// note plans the rebuild of modules that failed, and takes down those that
// panicked. With scope.mu held.
func (v *supervisor) note(failures []failure) {
	for _, f := range failures {
		v.log(f)
		if f.room != nil && f.room != v.scope.rooms[f.module] {
			continue // what panicked is gone already
		}
		t := v.trouble[f.module]
		if t == nil {
			t = &trouble{}
			v.trouble[f.module] = t
		}
		if t.waits() {
			continue
		}
		if time.Since(t.last) > v.scope.hive.options.retryLimit {
			t.inARow = 0
		}
		t.inARow++
		pause := v.pause(t, f.err)
		t.due = time.Now().Add(pause)
		v.stand(f.module).Degraded(t.describe(pause), f.err)
		if isPanic(f.err) {
			v.takeDown([]*plan.Module{f.module})
		}
	}
	v.reportBlocked()
}

// pause is how long to wait before a rebuild. A panic is often the fault of
// one moment, so the first two cost none.
func (v *supervisor) pause(t *trouble, err error) time.Duration {
	free := 0
	if isPanic(err) {
		free = 2
	}
	if t.inARow <= free {
		return 0
	}
	o := &v.scope.hive.options
	return min(o.retryFirst<<min(t.inARow-free-1, 20), o.retryLimit)
}

func (t *trouble) describe(pause time.Duration) string {
	if pause == 0 {
		return "is being rebuilt"
	}
	return fmt.Sprintf("failed %d times in a row; next try in %s", t.inARow, pause)
}

func isPanic(err error) bool {
	if errors.As(err, new(*lifecycle.PanicError)) {
		return true
	}
	b := new(build.Error)
	return errors.As(err, &b) && b.Panicked
}

func (v *supervisor) log(f failure) {
	log := v.scope.hive.log.Logger(f.module.Label())
	if p := new(lifecycle.PanicError); errors.As(f.err, &p) {
		log.Error("module panicked", "panic", fmt.Sprint(p.Value), "stack", string(p.Stack))
		return
	}
	log.Error("module failed to start", "error", f.err)
}
