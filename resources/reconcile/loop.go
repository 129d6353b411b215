// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/plan"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// Loop brings keys to their desired state. Adding keys is safe for concurrent
// use, before and while it runs; a loop runs once.
//
//   - A key is looked at by one worker at a time.
//   - A key added again while it waits is looked at once; one added while a
//     worker has it is looked at again.
//   - A look that fails is repeated after a growing pause, until it succeeds.
type Loop[K comparable] struct {
	rule    string
	do      func(context.Context, K) error
	options options

	mu       sync.Mutex
	queue    workqueue.TypedRateLimitingInterface[K] // nil until the loop runs
	limiter  workqueue.TypedRateLimiter[K]
	early    []K // added before that
	triggers map[K][]k8s.Trigger
	failing  map[K]error
	planned  planned[K]
}

type options struct {
	workers        int
	first, longest time.Duration
	patient        bool
	log            *slog.Logger
	health         health.Reporter
	book           *explain.Book
	plan           *plan.Plan
}

// Option changes a loop.
type Option func(*options)

// Workers is how many keys are looked at at once. Without it there are four.
func Workers(n int) Option { return func(o *options) { o.workers = n } }

// Pauses bound the pauses after failures: they double from first to longest.
// Without it they go from 50 ms to a minute.
func Pauses(first, longest time.Duration) Option {
	return func(o *options) { o.first, o.longest = first, longest }
}

// Patient has a key that has failed wait out its pause, whatever it is added for
// meanwhile: for keys of which much happens that makes another try no better.
func Patient() Option { return func(o *options) { o.patient = true } }

// New returns a loop. rule says in one or two words what it does and is part of
// the cause of each of its writes, after the module's id. do looks at one key:
// it reads what is, decides what should be, and writes the difference.
func New[K comparable](s Scope, rule string, do func(context.Context, K) error, opts ...Option) *Loop[K] {
	o := options{workers: 4, first: 50 * time.Millisecond, longest: time.Minute, log: s.Log, health: s.Health, book: s.Book, plan: s.Plan}
	for _, apply := range opts {
		apply(&o)
	}
	o.health = o.health.Part("loop-" + strings.ReplaceAll(rule, " ", "-"))
	l := &Loop[K]{
		rule: s.Module.ID + " " + rule, do: do, options: o,
		triggers: map[K][]k8s.Trigger{}, failing: map[K]error{},
		planned: planned[K]{looks: map[K]waiting{}},
	}
	o.plan.Observe(l.load)
	return l
}

// maxTriggers bounds what a key remembers while it waits: the last ones.
const maxTriggers = 8

// After is what a look returns that has done its part and waits for something
// to happen elsewhere: the key is looked at again after d, and nothing is said
// to fail.
func After(d time.Duration) error { return &afterError{d} }

type afterError struct{ pause time.Duration }

func (e *afterError) Error() string { return fmt.Sprintf("to be looked at again after %s", e.pause) }

// Add has a key looked at. The triggers say why.
func (l *Loop[K]) Add(key K, triggers ...k8s.Trigger) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.triggers[key] = last(slices.Concat(l.triggers[key], triggers))
	if l.options.patient && l.failing[key] != nil {
		return // another look is to come
	}
	delete(l.planned.looks, key)
	if l.queue == nil {
		l.early = append(l.early, key)
	} else {
		l.queue.Add(key)
	}
}

// remember keeps why a key is looked at for the next look.
func (l *Loop[K]) remember(key K, triggers []k8s.Trigger) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.triggers[key] = last(slices.Concat(triggers, l.triggers[key]))
}

func last(all []k8s.Trigger) []k8s.Trigger { return all[max(0, len(all)-maxTriggers):] }

// Job runs the loop.
func (l *Loop[K]) Job() job.Job { return job.OneShot(l.Run) }

// Run looks at keys until ctx ends.
func (l *Loop[K]) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	queue := l.open()
	defer l.ended()
	defer queue.ShutDown()
	defer context.AfterFunc(ctx, queue.ShutDown)()
	var workers sync.WaitGroup
	panics := make(chan error, l.options.workers)
	for range l.options.workers {
		workers.Go(func() {
			defer func() {
				if v := recover(); v != nil {
					panics <- &lifecycle.PanicError{Value: v, Stack: debug.Stack()}
					cancel() // nothing must build upon a half-made decision
				}
			}()
			for l.next(ctx, queue) {
			}
		})
	}
	workers.Wait()
	select {
	case v := <-panics:
		panic(v) // the job reports it
	default:
		return ctx.Err()
	}
}

// open makes the queue, which has goroutines of its own, with what was added
// early.
func (l *Loop[K]) open() workqueue.TypedRateLimitingInterface[K] {
	l.mu.Lock()
	defer l.mu.Unlock()
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[K](l.options.first, l.options.longest)
	l.limiter, l.queue = limiter, workqueue.NewTypedRateLimitingQueue(limiter)
	for _, key := range l.early {
		l.queue.Add(key)
	}
	l.early = nil
	return l.queue
}

func (l *Loop[K]) next(ctx context.Context, queue workqueue.TypedRateLimitingInterface[K]) bool {
	key, shutdown := queue.Get()
	if shutdown {
		return false
	}
	defer queue.Done(key)
	if ctx.Err() != nil {
		return false
	}
	l.mu.Lock()
	triggers, due := l.triggers[key]
	delete(l.triggers, key)
	l.mu.Unlock()
	if !due { // a look that began after the key was added has seen to it
		return true
	}

	cause := &k8s.Cause{Rule: l.rule, Triggers: triggers}
	look := l.begin(key)
	defer look.end()
	err := l.do(look.mark(k8s.WithCause(ctx, cause)), key)
	again := new(afterError)
	if ctx.Err() == nil {
		l.decided(cause, key, err)
	}
	switch {
	case ctx.Err() != nil:
		return false
	case errors.As(err, &again):
		l.succeeded(key)
		l.remember(key, triggers)
		queue.Forget(key)
		look.later(queue, again.pause)
	case err == nil:
		queue.Forget(key)
		l.succeeded(key)
	default:
		l.remember(key, triggers)
		l.failed(key, err)
		look.retry(queue)
	}
	return true
}

// decided remembers what came of a look. One that waits has done its part.
func (l *Loop[K]) decided(c *k8s.Cause, key K, err error) {
	if again := new(afterError); errors.As(err, &again) {
		err = nil
	}
	l.options.book.Decided(c, key, err)
}

func (l *Loop[K]) succeeded(key K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failing[key] == nil {
		return
	}
	delete(l.failing, key)
	if len(l.failing) == 0 {
		l.options.health.OK("")
	}
	if _, due := l.triggers[key]; due { // it was added while it was looked at
		l.queue.Add(key)
	}
}

// failed reports the first failure of a key in the log; health shows how many
// keys fail now.
func (l *Loop[K]) failed(key K, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := l.failing[key] == nil
	l.failing[key] = err
	l.options.health.Degraded(fmt.Sprintf("%d not done, %v among them", len(l.failing), key), err)
	level := slog.LevelDebug
	if first && !errors.Is(err, k8s.ErrFenced) {
		level = slog.LevelWarn
	}
	l.options.log.Log(context.Background(), level, "will try again", "rule", l.rule, "key", fmt.Sprint(key), "error", err)
}
