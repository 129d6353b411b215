// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reconcile

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/skep-operator/skep/resources/dryrun"
)

// maxRepeats bounds the attempts of a key in a dry run, whose time is simulated. Time advances for a key while another
// attempt may have another result: a write was planned since its last attempt started, or it had fewer attempts.
const maxRepeats = 3

// dryRunState is the state of a queue in a dry run. It is guarded by the queue's lock.
type dryRunState[K comparable] struct {
	ended    bool
	running  int // attempts
	requeues map[K]requeue
}

// requeue is a key that was requeued, with no change since but time.
type requeue struct {
	pause time.Duration // that its last attempt asked for, 0 after a failure
	times int
}

// attempt is one reconciliation of a key.
type attempt[K comparable] struct {
	queue      *Queue[K]
	key        K
	before     requeue
	generation uint64
	dryrun.Pass
}

func (q *Queue[K]) startAttempt(key K) *attempt[K] {
	p := q.options.plan
	a := &attempt[K]{queue: q, key: key, generation: p.Generation()}
	if p != nil {
		p.Moved()
		q.mu.Lock()
		defer q.mu.Unlock()
		q.dryRun.running++
		a.before = q.dryRun.requeues[key]
		delete(q.dryRun.requeues, key)
		a.Again = a.before.pause
	}
	return a
}

// withContext marks the writes of the attempt.
func (a *attempt[K]) withContext(ctx context.Context) context.Context {
	if a.queue.options.plan == nil {
		return ctx
	}
	return dryrun.WithPass(ctx, &a.Pass)
}

func (a *attempt[K]) finish() {
	if p := a.queue.options.plan; p != nil {
		p.Moved()
		a.queue.mu.Lock()
		defer a.queue.mu.Unlock()
		a.queue.dryRun.running--
	}
}

// requeueAfter requeues the key after a pause.
func (a *attempt[K]) requeueAfter(queue workqueue.TypedRateLimitingInterface[K], pause time.Duration) {
	a.schedule(queue, pause, requeue{pause: pause, times: a.before.times + 1})
}

// retry requeues the key after a failure.
func (a *attempt[K]) retry(queue workqueue.TypedRateLimitingInterface[K], pause time.Duration) {
	a.schedule(queue, pause, requeue{times: a.before.times + 1})
}

func (a *attempt[K]) schedule(queue workqueue.TypedRateLimitingInterface[K], pause time.Duration, r requeue) {
	q, p := a.queue, a.queue.options.plan
	if p == nil {
		queue.AddAfter(a.key, pause)
		return
	}
	needed := func() bool {
		return p.Generation() != a.generation || r.times < maxRepeats && !a.Recurred()
	}
	p.AfterFunc(pause, needed, func() {
		q.mu.Lock()
		_, due := q.triggers[a.key]
		if due && !q.dryRun.ended {
			q.dryRun.requeues[a.key] = r
		}
		q.mu.Unlock()
		queue.Add(a.key)
	})
}

// load is the work of the queue that a dry run waits for.
func (q *Queue[K]) load() (load dryrun.Load) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.dryRun.ended {
		return load
	}
	n := len(q.preStart) + q.dryRun.running
	if q.queue != nil {
		n += q.queue.Len()
	}
	if n > 0 {
		load.Busy = append(load.Busy, fmt.Sprintf("%s: %d keys queued", q.rule, n))
	}
	for key, f := range q.failing.keys {
		load.Failed = append(load.Failed, fmt.Sprintf("%s, %v: waits for a retry: %v", q.rule, key, f.err))
	}
	return load
}

// recordEnd is called when Run returns.
func (q *Queue[K]) recordEnd() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dryRun.ended = true
	q.options.metrics.forget(q.name)
}
