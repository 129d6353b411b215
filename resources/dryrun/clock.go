// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package dryrun

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"
)

// Now is the simulated time of a plan: it stands still but for jumps. In a real
// run it is the time.
func (p *Plan) Now() time.Time {
	if p == nil {
		return time.Now()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.began.Add(p.ahead)
}

// Timer fires when simulated time has come to it; in a real run it is a
// time.Timer.
type Timer struct {
	// C receives the time when the timer fires. It is nil for AfterFunc.
	C <-chan time.Time

	real   *time.Timer
	plan   *Plan
	worker *Worker // rests until the timer fires or is stopped, or nil
	number uint64  // in the order they were set
	due    time.Duration
	needed func() bool
	fire   func(time.Time)
}

// AfterFunc calls f, which must not block, after d. In a plan time jumps to that
// moment only if needed says that something is to come of it, or time passes it
// because of others.
func (p *Plan) AfterFunc(d time.Duration, needed func() bool, f func()) *Timer {
	if p == nil {
		return &Timer{real: time.AfterFunc(d, f)}
	}
	t := &Timer{plan: p, needed: needed, fire: func(time.Time) { f() }}
	t.Reset(d)
	return t
}

// Worker is a mechanism that is at work all the time, except while it waits for
// a timer of its own.
type Worker struct {
	plan    *Plan // nil in a real run
	who     string
	resting bool // under plan.mu
}

// Begin says that a mechanism is at work until it calls End.
func (p *Plan) Begin(who string) *Worker {
	w := &Worker{plan: p, who: who}
	if p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.workers[w] = struct{}{}
	}
	return w
}

// End says that it is not at work any more.
func (w *Worker) End() {
	if w.plan != nil {
		w.plan.mu.Lock()
		defer w.plan.mu.Unlock()
		delete(w.plan.workers, w)
	}
}

// NewTimer is as AfterFunc for the worker, which rests until the timer fires or
// is stopped.
func (w *Worker) NewTimer(d time.Duration, needed func() bool) *Timer {
	if w.plan == nil {
		real := time.NewTimer(d)
		return &Timer{C: real.C, real: real}
	}
	c := make(chan time.Time, 1)
	t := &Timer{C: c, plan: w.plan, worker: w, needed: needed, fire: func(now time.Time) {
		select {
		case c <- now:
		default:
		}
	}}
	t.Reset(d)
	return t
}

// Reset makes the timer fire d from now.
func (t *Timer) Reset(d time.Duration) {
	if t.real != nil {
		t.real.Reset(d)
		return
	}
	t.plan.mu.Lock()
	defer t.plan.mu.Unlock()
	t.plan.set++
	t.number, t.due = t.plan.set, t.plan.ahead+max(0, d)
	t.plan.timers[t] = struct{}{}
	t.rest(true)
}

// Stop keeps the timer from firing.
func (t *Timer) Stop() {
	if t.real != nil {
		t.real.Stop()
		return
	}
	t.plan.mu.Lock()
	defer t.plan.mu.Unlock()
	delete(t.plan.timers, t)
	t.rest(false)
}

// rest is called with the plan's lock held.
func (t *Timer) rest(resting bool) {
	if t.worker != nil {
		t.worker.resting = resting
	}
}

// jump moves time on to the next moment at which a timer is needed, and fires
// all that are due then. It reports false if there is none within the limit. For
// timers beyond the limit no time passes: whether they were set before or after a
// jump depends on how quick the machine is.
func (p *Plan) jump(limit time.Duration) bool {
	next, ok := p.next()
	if !ok {
		return false
	}
	p.mu.Lock()
	if next-p.ahead > limit {
		p.mu.Unlock()
		return false
	}
	before := p.ahead
	p.ahead = max(p.ahead, next)
	now := p.began.Add(p.ahead)
	var due []*Timer
	for t := range p.timers {
		switch {
		case t.due <= p.ahead:
			delete(p.timers, t)
			t.rest(false)
			due = append(due, t)
		case t.due-before > limit:
			t.due += p.ahead - before
		}
	}
	p.mu.Unlock()
	slices.SortFunc(due, func(a, b *Timer) int { return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.number, b.number)) })
	for _, t := range due {
		p.Moved()
		t.fire(now)
	}
	return true
}

// next is when the first timer is due that is needed.
func (p *Plan) next() (due time.Duration, ok bool) {
	p.mu.Lock()
	timers := make(map[*Timer]time.Duration, len(p.timers))
	for t := range p.timers {
		timers[t] = t.due
	}
	p.mu.Unlock()
	for t, at := range timers { // without the lock: needed is foreign code
		if (!ok || at < due) && t.needed() {
			due, ok = at, true
		}
	}
	return due, ok
}

// Pass is one pass of a mechanism over what it is responsible for.
type Pass struct {
	// Again is the pause after which the previous pass requested this one; 0 if
	// something else triggered it.
	Again time.Duration

	recurred atomic.Bool // it repeated a write of the previous pass
}

// Recurred reports whether the pass repeated a write of one before it: it would
// do so for ever.
func (l *Pass) Recurred() bool { return l.recurred.Load() }

type passKey struct{}

// WithPass marks the writes of a pass.
func WithPass(ctx context.Context, l *Pass) context.Context {
	return context.WithValue(ctx, passKey{}, l)
}
