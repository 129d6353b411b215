// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package workers runs the goroutines of one job: those of a work queue, of watches, of a sweep. A panic of one is that of the job, and
// one that does not return when it is to stop is left behind, and named.
package workers

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"runtime/pprof"
	"sync/atomic"
	"time"

	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// Worker is a function that runs until its context ends.
type Worker struct {
	Run func(context.Context)
	// Doing is what it is doing, for the report of one that does not return: the rule and the key.
	Doing func() string
}

// Grace is how long workers have to return after the end of their context. What they read with it fails at once; a write that is under way goes on for
// leading.ResponseTime: a worker that waits for it does not hang.
const Grace = leading.ResponseTime + time.Second

// Forever is the grace of workers that are always waited for.
const Forever time.Duration = 0

// running numbers workers, so that the stack of each can be found.
var running atomic.Uint64

// Run runs workers at once, and returns when all have returned. A panic of one cancels the context of all, since the others must not use
// its incomplete state, and is the caller's. Workers that do not return within the grace after the end of their context are left behind:
// they are the error, as a lifecycle.HangError each.
func Run(ctx context.Context, grace time.Duration, all ...Worker) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g := &group{panics: make(chan error, len(all)), ended: make(chan int, len(all)), left: map[int]string{}, cancel: cancel}
	for i, w := range all {
		g.left[i] = fmt.Sprint(running.Add(1))
		go pprof.Do(ctx, pprof.Labels(label, g.left[i]), func(ctx context.Context) { g.run(ctx, i, w) })
	}
	g.wait(ctx, grace)
	select {
	case v := <-g.panics:
		panic(v) // the job reports it
	default:
	}
	return g.hangs(all)
}

const label = "worker"

type group struct {
	panics chan error
	ended  chan int
	left   map[int]string // workers that have not returned, with the value of their label
	cancel func()
}

func (g *group) run(ctx context.Context, i int, w Worker) {
	defer func() {
		if v := recover(); v != nil {
			g.panics <- lifecycle.AsPanic(v, debug.Stack())
			g.cancel()
		}
		g.ended <- i
	}()
	w.Run(ctx)
}

// base is the name of group.run, below which a worker's own frames begin.
var base = reflect.TypeFor[group]().PkgPath() + ".(*group).run"

// wait returns when all workers have, or the grace is over.
func (g *group) wait(ctx context.Context, grace time.Duration) {
	stopping := ctx.Done()
	var over <-chan time.Time
	for len(g.left) > 0 {
		select {
		case i := <-g.ended:
			delete(g.left, i)
		case <-stopping:
			stopping = nil
			if grace != Forever {
				timer := time.NewTimer(grace)
				defer timer.Stop()
				over = timer.C
			}
		case <-over:
			return
		}
	}
}

func (g *group) hangs(all []Worker) error {
	var errs []error
	for i, w := range all {
		if value, is := g.left[i]; is {
			errs = append(errs, lifecycle.HangOf(w.Doing(), base, label, value))
		}
	}
	return errors.Join(errs...)
}
