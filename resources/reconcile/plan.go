// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reconcile

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/skep-operator/skep/resources/plan"
)

// In a plan keys wait for simulated time. It is moved on for a key as long as
// something may come of another look: something was planned since the last one
// began, or it has not been looked at again often enough to say that nothing
// will.
const enoughLooks = 3

// planned is what a loop remembers for a plan. It is guarded by the loop's lock.
type planned[K comparable] struct {
	over    bool // the loop has ended
	looking int  // keys that workers have
	looks   map[K]waiting
}

// waiting is a key that is looked at again and again, with nothing new but time.
type waiting struct {
	pause time.Duration // after which the last look asked for another, 0 after a failure
	times int
}

// look is one look at a key.
type look[K comparable] struct {
	loop       *Loop[K]
	key        K
	before     waiting
	generation uint64
	plan.Look
}

// begin begins a look at a key.
func (l *Loop[K]) begin(key K) *look[K] {
	p := l.options.plan
	k := &look[K]{loop: l, key: key, generation: p.Generation()}
	if p != nil {
		p.Moved()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.planned.looking++
		k.before = l.planned.looks[key]
		delete(l.planned.looks, key)
		k.Again = k.before.pause
	}
	return k
}

// mark marks what the look writes.
func (k *look[K]) mark(ctx context.Context) context.Context {
	if k.loop.options.plan == nil {
		return ctx
	}
	return plan.WithLook(ctx, &k.Look)
}

func (k *look[K]) end() {
	if p := k.loop.options.plan; p != nil {
		p.Moved()
		k.loop.mu.Lock()
		defer k.loop.mu.Unlock()
		k.loop.planned.looking--
	}
}

// later has the key looked at again after a pause.
func (k *look[K]) later(queue workqueue.TypedRateLimitingInterface[K], pause time.Duration) {
	if k.loop.options.plan == nil {
		queue.AddAfter(k.key, pause)
		return
	}
	k.plan(queue, pause, waiting{pause: pause, times: k.before.times + 1})
}

// retry has the key looked at again after a pause that grows with its failures.
func (k *look[K]) retry(queue workqueue.TypedRateLimitingInterface[K]) {
	if k.loop.options.plan == nil {
		queue.AddRateLimited(k.key)
		return
	}
	k.plan(queue, k.loop.limiter.When(k.key), waiting{times: k.before.times + 1})
}

func (k *look[K]) plan(queue workqueue.TypedRateLimitingInterface[K], pause time.Duration, w waiting) {
	l, p := k.loop, k.loop.options.plan
	needed := func() bool {
		return p.Generation() != k.generation || w.times < enoughLooks && !k.Recurred()
	}
	p.AfterFunc(pause, needed, func() {
		l.mu.Lock()
		_, due := l.triggers[k.key]
		if due && !l.planned.over {
			l.planned.looks[k.key] = w
		}
		l.mu.Unlock()
		queue.Add(k.key)
	})
}

// load is what the loop is at, for a plan.
func (l *Loop[K]) load() (load plan.Load) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.planned.over {
		return load
	}
	n := len(l.early) + l.planned.looking
	if l.queue != nil {
		n += l.queue.Len()
	}
	if n > 0 {
		load.Busy = append(load.Busy, fmt.Sprintf("%s: %d to be looked at", l.rule, n))
	}
	for key, err := range l.failing {
		load.Waiting = append(load.Waiting, fmt.Sprintf("%s, %v: waits for a retry: %v", l.rule, key, err))
	}
	return load
}

// ended says that nothing is looked at any more.
func (l *Loop[K]) ended() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.planned.over = true
}
