// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/skep-operator/skep/resources/dryrun"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/internal/inflight"
	"github.com/skep-operator/skep/resources/internal/workers"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/panics"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/job"
)

// Queue is a work queue that reconciles keys. Add is safe for concurrent use, before and during Run; a queue runs once.
//
//   - A key is reconciled by one worker at a time.
//   - Namespaces take turns, and one never has all workers.
//   - A key added again while it waits is reconciled once; one added while it is reconciled is reconciled again.
//   - A failure is retried with back-off until it succeeds. Add retries at once, but for keys that wait because the API
//     server throttles, for a permission, or because another writer reverts the change.
//   - A panic is a failure of its key alone, which waits with a pause that Add does not cut short. Where it came while shared state was
//     changed (panics.Sharing), Run panics, and the key waits in the module that is built anew.
//   - Health shows failures, and attempts that take long.
type Queue[K comparable] struct {
	rule    string
	name    string // in metrics
	do      func(context.Context, K) error
	options options

	mu         sync.Mutex
	queue      workqueue.TypedRateLimitingInterface[K] // nil until Run
	waiting    *fairQueue[K]                           // the keys in it
	limiter    workqueue.TypedRateLimiter[K]
	preStart   []K // added before
	triggers   map[K][]k8s.Trigger
	requests   requests[K]
	failing    failures[K]
	dryRun     dryRunState[K]
	missingJob missingJob
	panics     *panics.Rule

	attempts *inflight.Tracker
	ctx      context.Context // of Run
	awaited  map[<-chan struct{}]bool
	watchers sync.WaitGroup // of awaited
}

type options struct {
	workers        int
	first, longest time.Duration
	ready          func(context.Context) error // nil: at once
	timeout        time.Duration               // 0: none
	honorBackoff   bool
	urgent         any // func(K) bool; nil: none are
	namespace      any // func(K) string; nil: that of a slim.Key
	log            *slog.Logger
	health         health.Reporter
	book           *explain.History
	plan           *dryrun.Plan
	metrics        *queueMetrics
	countRuns      bool
	duties         []*DutyMetrics
}

// Option changes a queue.
type Option func(*options)

// Workers is the number of keys that are reconciled at once, by default four.
func Workers(n int) Option { return func(o *options) { o.workers = n } }

// Backoff is the pause after the first failure, which doubles up to longest, by default from 50 ms to a minute.
func Backoff(first, longest time.Duration) Option {
	return func(o *options) { o.first, o.longest = first, longest }
}

// HonorBackoff has Add not shorten the back-off of a key: for keys that change often for reasons unrelated to the failure.
func HonorBackoff() Option { return func(o *options) { o.honorBackoff = true } }

// AwaitReady has Run call ready before it reconciles keys.
func AwaitReady(ready func(context.Context) error) Option {
	return func(o *options) { o.ready = ready }
}

// Timeout bounds each attempt.
func Timeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// NewQueue returns a queue that does not run. rule is one or two words for the work; with the module's id it is part of
// the cause of each write. do reconciles a key: it reads the state, computes the desired one and writes the difference.
func NewQueue[K comparable](s Deps, rule string, do func(context.Context, K) error, opts ...Option) *Queue[K] {
	o := options{workers: 4, first: 50 * time.Millisecond, longest: time.Minute, log: s.Log, health: s.Health, book: s.Book, plan: s.Plan, metrics: s.metrics}
	for _, apply := range opts {
		apply(&o)
	}
	dashed := strings.ReplaceAll(rule, " ", "-")
	name := s.Module.ID + "/" + dashed
	o.health, o.countRuns = o.health.Child("loop-"+dashed), s.config.selects(name)
	q := &Queue[K]{
		rule: s.Module.ID + " " + rule, name: name, do: do, options: o, panics: s.RuleOf(rule),
		triggers: map[K][]k8s.Trigger{}, requests: newRequests[K](o.duties), failing: newFailures[K](),
		dryRun:   dryRunState[K]{requeues: map[K]requeue{}},
		attempts: inflight.New(o.health, o.log, s.Module.ID+" "+rule), awaited: map[<-chan struct{}]bool{},
	}
	o.plan.Observe(q.load)
	return q
}

// maxTriggers is the number of triggers kept of a waiting key: the last ones.
const maxTriggers = 8

// RequeueAfter is the error with which an attempt without a failure has its key reconciled again after d.
func RequeueAfter(d time.Duration) error { return &requeueError{d} }

// recheckInterval is the pause after Recheck.
const recheckInterval = time.Second

// Recheck is the error of an attempt that read another state on the server than the cache has: its key is reconciled
// again after a second, unless the change arrives before. It may never arrive, as a proxy can answer a read with another
// object; so the attempt has not failed, and is not done either.
func Recheck() error { return RequeueAfter(recheckInterval) }

type requeueError struct{ pause time.Duration }

func (e *requeueError) Error() string { return fmt.Sprintf("requeue after %s", e.pause) }

// Add enqueues a key. The triggers are part of the cause of its writes.
func (q *Queue[K]) Add(key K, triggers ...k8s.Trigger) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.triggers[key] = last(slices.Concat(q.triggers[key], triggers))
	q.requests.added(key)
	if f, fails := q.failing.keys[key]; fails && (q.options.honorBackoff || !f.until.IsZero()) {
		return // a retry is scheduled
	}
	delete(q.dryRun.requeues, key)
	if q.queue == nil {
		q.preStart = append(q.preStart, key)
		q.missingJob.keyAdded(q.options.health)
	} else {
		q.queue.Add(key)
	}
}

// keepTriggers keeps the triggers of a key for its next attempt.
func (q *Queue[K]) keepTriggers(key K, triggers []k8s.Trigger) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.triggers[key] = last(slices.Concat(triggers, q.triggers[key]))
}

func last(all []k8s.Trigger) []k8s.Trigger { return all[max(0, len(all)-maxTriggers):] }

// Job runs the queue.
func (q *Queue[K]) Job() job.Job { return job.OneShot(q.Run) }

// Run reconciles keys until ctx ends.
func (q *Queue[K]) Run(ctx context.Context) error {
	q.recordStart()
	if ready := q.options.ready; ready != nil {
		if err := ready(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer q.watchers.Wait()
	defer cancel()
	queue := q.start(ctx)
	defer q.recordEnd()
	defer queue.ShutDown()
	all := make([]workers.Worker, q.options.workers)
	for i := range all {
		all[i] = q.newWorker(queue)
	}
	if err := workers.Run(ctx, workers.Grace, all...); err != nil {
		return err
	}
	return ctx.Err()
}

// newWorker returns a worker that reconciles keys.
func (q *Queue[K]) newWorker(queue workqueue.TypedRateLimitingInterface[K]) workers.Worker {
	var current atomic.Pointer[K]
	return workers.Worker{
		Run: func(ctx context.Context) {
			defer context.AfterFunc(ctx, queue.ShutDown)()
			for q.processNext(ctx, queue, &current) {
			}
		},
		Doing: func() string {
			if key := current.Load(); key != nil {
				return fmt.Sprintf("%s, %v", q.rule, *key)
			}
			return q.rule
		},
	}
}

func (q *Queue[K]) recordStart() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.missingJob.jobStarted()
}

// start creates the work queue, which has goroutines of its own, with the keys that were added before.
func (q *Queue[K]) start(ctx context.Context) workqueue.TypedRateLimitingInterface[K] {
	q.mu.Lock()
	defer q.mu.Unlock()
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[K](q.options.first, q.options.longest)
	q.ctx, q.limiter = ctx, limiter
	q.waiting = q.newWaiting()
	provider := q.options.metrics.provider()
	q.queue = workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[K]{
		DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[K]{
			Name: q.name, MetricsProvider: provider,
			Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[K]{
				Name: q.name, MetricsProvider: provider, Queue: q.waiting, Clock: gaugeClock{},
			}),
		}),
	})
	for _, key := range q.preStart {
		q.queue.Add(key)
	}
	q.preStart = nil
	return q.queue
}

// newWaiting returns the order of the keys.
func (q *Queue[K]) newWaiting() *fairQueue[K] {
	namespace, isUrgent := namespaceOf[K], func(K) bool { return false }
	if of := q.options.namespace; of != nil {
		namespace = of.(func(K) string)
	}
	if is := q.options.urgent; is != nil {
		isUrgent = is.(func(K) bool)
	}
	return newFairQueue(q.options.workers, namespace, isUrgent)
}

func (q *Queue[K]) processNext(ctx context.Context, queue workqueue.TypedRateLimitingInterface[K], current *atomic.Pointer[K]) bool {
	key, shutdown := queue.Get()
	if shutdown {
		return false
	}
	defer queue.Done(key)
	defer q.waiting.done(key)
	current.Store(&key)
	if ctx.Err() != nil {
		return false
	}
	triggers, due := q.popTriggers(key)
	if !due { // an attempt that started after Add has reconciled it, or it is held
		return true
	}

	cause := &k8s.Cause{Rule: q.rule, Triggers: triggers}
	attempt := q.startAttempt(key)
	defer attempt.finish()
	defer q.attempts.Begin(key)()
	defer q.requests.ended(time.Now())
	err := q.panics.Run(key, func() error { return q.doLimited(attempt.withContext(k8s.WithCause(ctx, cause)), key) })
	again := new(requeueError)
	if ctx.Err() == nil {
		q.recordDecision(cause, key, err)
		q.countRun(err)
	}
	panics.Rebuild(err)
	switch {
	case ctx.Err() != nil:
		return false
	case errors.As(err, &again):
		q.recordSuccess(key)
		q.keepTriggers(key, triggers)
		queue.Forget(key)
		attempt.requeueAfter(queue, again.pause)
	case err == nil:
		queue.Forget(key)
		q.recordSuccess(key)
	default:
		q.keepTriggers(key, triggers)
		attempt.retry(queue, q.recordFailure(key, err, q.limiter.When(key)))
	}
	return true
}

func (q *Queue[K]) doLimited(ctx context.Context, key K) error {
	if q.options.timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, q.options.timeout)
		defer cancel()
		ctx = limited
	}
	return q.do(ctx, key)
}

// popTriggers returns the triggers of a key that is due. One that is held is requeued for the end of its pause.
func (q *Queue[K]) popTriggers(key K) (triggers []k8s.Trigger, due bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.options.plan == nil {
		if rest := max(q.failing.remaining(key, time.Now()), q.setAside(key)); rest > 0 {
			q.queue.AddAfter(key, rest)
			return nil, false
		}
	}
	if triggers, due = q.triggers[key]; due {
		q.requests.begun(key)
	}
	delete(q.triggers, key)
	if len(q.triggers) == 0 { // a map keeps the size that it had when all objects arrived
		q.triggers = map[K][]k8s.Trigger{}
	}
	return triggers, due
}

// recordDecision records the result of an attempt for the explain command. A requeue is a success.
func (q *Queue[K]) recordDecision(c *k8s.Cause, key K, err error) {
	if isRequeue(err) {
		err = nil
	}
	q.options.book.RecordDecision(c, key, err)
}

// countRun counts an attempt, if the options select the queue. A requeue is a success.
func (q *Queue[K]) countRun(err error) {
	if q.options.countRuns {
		q.options.metrics.recordRun(q.name, err != nil && !isRequeue(err))
	}
}

func isRequeue(err error) bool { return errors.As(err, new(*requeueError)) }

func (q *Queue[K]) recordSuccess(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.failing.remove(key) {
		return
	}
	if len(q.failing.keys) == 0 {
		q.options.health.OK("")
	}
	if _, due := q.triggers[key]; due { // it was added during the attempt
		q.queue.Add(key)
	}
}
