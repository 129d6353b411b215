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

// Limits bound all requests together.
type Limits struct {
	Rate   float64 // requests per second; 0: no limit
	Burst  int     // requests at once after a pause, at least 1
	AtOnce int     // requests in flight; 0: no limit
	// HeldUp is called with the time that a delayed request waited, whether it was
	// sent or aborted. It may be nil.
	HeldUp func(module string, d time.Duration)
}

// Limiter shares limits between modules. Without a queue a request is admitted as soon
// as the limits allow; otherwise modules take turns, so that one with thousands of
// requests delays another by one request only. It has no goroutine and is safe for
// concurrent use.
type Limiter struct {
	rate   *rate.Limiter // nil: no limit
	heldUp func(module string, d time.Duration)

	mu     sync.Mutex
	free   int                        // slots for requests in flight
	queues map[string][]chan struct{} // of waiting modules
	turn   []string                   // modules with a queue, the next one first
	due    *time.Timer                // when the next token is due, while the queue waits for it
}

// New returns a limiter.
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

// Acquire waits until the module may send a request, or returns the cause when ctx
// ends. The caller calls release once, after the request.
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

// Wait is Acquire for requests whose end is not reported: it takes no slot.
func (l *Limiter) Wait(ctx context.Context, module string) error {
	release, err := l.Acquire(ctx, module)
	if err == nil {
		release()
	}
	return err
}

// Waiting returns the number of requests in the queues.
func (l *Limiter) Waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, queue := range l.queues {
		n += len(queue)
	}
	return n
}

// ask returns nil if the request is admitted at once, else a channel that is closed when
// it is.
func (l *Limiter) ask(module string) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.turn) == 0 && l.reserve() {
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

// leave removes a request from its queue. One that was admitted meanwhile returns its
// slot.
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

// reserve takes a slot and a token, and reports whether both were available. If only the
// token is missing, a timer serves the queues when it is due.
func (l *Limiter) reserve() bool {
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

// serve admits waiting requests while there are slots and tokens.
func (l *Limiter) serve() {
	for len(l.turn) > 0 && l.reserve() {
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
