// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package fair

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limits are what all requests together may use.
type Limits struct {
	Rate   float64 // requests per second; 0: as many as there are
	Burst  int     // requests that may go at once after a pause, at least 1
	AtOnce int     // requests under way; 0: as many as there are
	// HeldUp is told how long each request waited that could not go at once, also
	// one that was given up. It may be nil.
	HeldUp func(module string, d time.Duration)
}

// Limiter shares limits between modules. While nobody waits, a request goes as
// soon as the limits allow; once there is a queue, modules get their turn one
// after the other, so that one with thousands of requests delays another by one
// request, not by all of its own. It has no goroutine, and is safe for concurrent
// use.
type Limiter struct {
	rate   *rate.Limiter // nil: no limit
	heldUp func(module string, d time.Duration)

	mu     sync.Mutex
	free   int                        // slots for requests under way
	queues map[string][]chan struct{} // of modules that wait
	turn   []string                   // modules with a queue, the next one first
	due    *time.Timer                // of the next token, while one is waited for
}

// New returns a limiter that nobody has used yet.
func New(l Limits) *Limiter {
	f := &Limiter{free: l.AtOnce, heldUp: l.HeldUp, queues: map[string][]chan struct{}{}}
	if l.AtOnce == 0 {
		f.free = math.MaxInt
	}
	if l.Rate > 0 {
		f.rate = rate.NewLimiter(rate.Limit(l.Rate), max(l.Burst, 1))
	}
	if f.heldUp == nil {
		f.heldUp = func(string, time.Duration) {}
	}
	return f
}

// Acquire returns when the module may send a request, or with the cause when ctx
// ends. release is called once, when the request is done.
func (l *Limiter) Acquire(ctx context.Context, module string) (release func(), err error) {
	ready := l.ask(module)
	if ready == nil {
		return l.release, nil
	}
	began := time.Now()
	defer func() { l.heldUp(module, time.Since(began)) }()
	select {
	case <-ready:
		return l.release, nil
	case <-ctx.Done():
		l.leave(module, ready)
		return nil, context.Cause(ctx)
	}
}

// Wait is Acquire for requests whose end nobody tells: it takes no slot.
func (l *Limiter) Wait(ctx context.Context, module string) error {
	release, err := l.Acquire(ctx, module)
	if err == nil {
		release()
	}
	return err
}

// Waiting is how many requests are held up now.
func (l *Limiter) Waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, queue := range l.queues {
		n += len(queue)
	}
	return n
}

// ask returns nil if the request may go, else a channel that is closed when it may.
func (l *Limiter) ask(module string) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.turn) == 0 && l.take() {
		return nil
	}
	ready := make(chan struct{})
	if len(l.queues[module]) == 0 {
		l.turn = append(l.turn, module)
	}
	l.queues[module] = append(l.queues[module], ready)
	return ready
}

func (l *Limiter) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free++
	l.serve()
}

// leave takes a request out of its queue. One that was let go at the same moment
// gives its slot back.
func (l *Limiter) leave(module string, ready chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	queue := l.queues[module]
	if i := slices.Index(queue, ready); i >= 0 {
		l.setQueue(module, slices.Delete(queue, i, i+1))
		return
	}
	l.free++
	l.serve()
}

func (l *Limiter) setQueue(module string, queue []chan struct{}) {
	if len(queue) > 0 {
		l.queues[module] = queue
		return
	}
	delete(l.queues, module)
	l.turn = slices.DeleteFunc(l.turn, func(m string) bool { return m == module })
}

// take reports whether there is a slot and a token, and takes them. If only the
// token is missing, it sees to it that those who wait are served when it is due.
func (l *Limiter) take() bool {
	if l.free == 0 || l.due != nil {
		return false
	}
	if l.rate != nil {
		token := l.rate.Reserve()
		if d := token.Delay(); d > 0 {
			token.Cancel()
			l.due = time.AfterFunc(d, l.tick)
			return false
		}
	}
	l.free--
	return true
}

// serve lets go whom there is a slot and a token for.
func (l *Limiter) serve() {
	for len(l.turn) > 0 && l.take() {
		module := l.turn[0]
		queue := l.queues[module]
		l.turn = append(l.turn[1:], module)
		l.setQueue(module, queue[1:])
		close(queue[0])
	}
}

func (l *Limiter) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due = nil
	l.serve()
}
