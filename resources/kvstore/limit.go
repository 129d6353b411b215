// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// limiter shares a rate and a number of requests at once between modules: those
// that wait get their turn module by module, so that one with thousands of
// requests delays another by one of them.
type limiter struct {
	rate *rate.Limiter

	mu     sync.Mutex
	free   int                        // slots
	queues map[string][]chan struct{} // of modules that wait
	turn   []string                   // modules with a queue, the next one first
	timer  *time.Timer                // of the next token, while one is waited for
}

func newLimiter(qps, atOnce int) *limiter {
	return &limiter{rate: rate.NewLimiter(rate.Limit(qps), qps), free: atOnce, queues: map[string][]chan struct{}{}}
}

// acquire returns when the module may send a request, or ctx ends. release is
// called when the request is done.
func (l *limiter) acquire(ctx context.Context, module string) (release func(), err error) {
	ready := make(chan struct{})
	l.mu.Lock()
	if len(l.queues[module]) == 0 {
		l.turn = append(l.turn, module)
	}
	l.queues[module] = append(l.queues[module], ready)
	l.serve()
	l.mu.Unlock()
	select {
	case <-ready:
		return l.release, nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.leave(module, ready) { // it was served at the same moment
		l.free++
		l.serve()
	}
	return nil, context.Cause(ctx)
}

func (l *limiter) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free++
	l.serve()
}

// leave takes a waiter out of its queue, and reports whether it was in it.
func (l *limiter) leave(module string, w chan struct{}) bool {
	queue := l.queues[module]
	i := slices.Index(queue, w)
	if i < 0 {
		return false
	}
	l.setQueue(module, slices.Delete(queue, i, i+1))
	return true
}

func (l *limiter) setQueue(module string, queue []chan struct{}) {
	if len(queue) > 0 {
		l.queues[module] = queue
		return
	}
	delete(l.queues, module)
	if i := slices.Index(l.turn, module); i >= 0 {
		l.turn = slices.Delete(l.turn, i, i+1)
	}
}

// serve lets go whom there is a slot and a token for. It is called with the
// lock held.
func (l *limiter) serve() {
	for len(l.turn) > 0 && l.free > 0 && l.timer == nil {
		token := l.rate.Reserve()
		if d := token.Delay(); d > 0 {
			token.Cancel()
			l.timer = time.AfterFunc(d, l.tick)
			return
		}
		module := l.turn[0]
		queue := l.queues[module]
		l.turn = append(l.turn[1:], module)
		l.setQueue(module, queue[1:])
		l.free--
		close(queue[0])
	}
}

func (l *limiter) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = nil
	l.serve()
}
