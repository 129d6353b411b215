// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// fairLimiter shares one rate between modules. While nobody waits, a request
// takes a token and goes; once there is a queue, modules get tokens in turn, so
// that one with thousands of requests delays another by one request, not by
// all of its own.
type fairLimiter struct {
	rate *rate.Limiter // nil: no limit
	// waited is told how long each request was held up.
	waited func(module string, d time.Duration)

	mu      sync.Mutex
	queues  map[string][]*waiter
	turn    []string // modules with a queue, the next one first
	waiting int      // waiters that have neither gone nor left
	pumping bool
	alone   chan struct{} // tells the pump that all waiters left
}

type waiter struct {
	ready      chan struct{}
	gone, left bool
}

func newFairLimiter(qps float64, burst int, waited func(string, time.Duration)) *fairLimiter {
	l := &fairLimiter{queues: map[string][]*waiter{}, waited: waited, alone: make(chan struct{}, 1)}
	if qps > 0 {
		l.rate = rate.NewLimiter(rate.Limit(qps), max(burst, 1))
	}
	return l
}

// Wait returns when the module may send a request, or ctx ends.
func (l *fairLimiter) Wait(ctx context.Context, module string) error {
	if l.rate == nil {
		return nil
	}
	l.mu.Lock()
	if len(l.turn) == 0 && l.rate.Allow() {
		l.mu.Unlock()
		return nil
	}
	w := &waiter{ready: make(chan struct{})}
	if len(l.queues[module]) == 0 {
		l.turn = append(l.turn, module)
	}
	l.queues[module] = append(l.queues[module], w)
	l.waiting++
	if !l.pumping {
		l.pumping = true
		go l.pump()
	}
	l.mu.Unlock()

	began := time.Now()
	defer func() { l.waited(module, time.Since(began)) }()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		l.leave(w)
		return context.Cause(ctx)
	}
}

func (l *fairLimiter) leave(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.gone {
		return
	}
	w.left = true
	if l.waiting--; l.waiting == 0 {
		select {
		case l.alone <- struct{}{}:
		default:
		}
	}
}

// pump hands out tokens until nobody waits.
func (l *fairLimiter) pump() {
	for {
		l.mu.Lock()
		l.dropLeft()
		if len(l.turn) == 0 {
			l.pumping = false
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		token := l.rate.Reserve()
		due := time.NewTimer(token.Delay())
		select {
		case <-due.C:
			l.mu.Lock()
			l.give()
			l.mu.Unlock()
		case <-l.alone:
			due.Stop()
			token.Cancel()
		}
	}
}

// give lets the first waiter of the module whose turn it is go.
func (l *fairLimiter) give() {
	for len(l.turn) > 0 {
		module := l.turn[0]
		queue := l.queues[module]
		w := queue[0]
		l.turn = l.turn[1:]
		if len(queue) > 1 {
			l.queues[module] = queue[1:]
			l.turn = append(l.turn, module)
		} else {
			delete(l.queues, module)
		}
		if !w.left {
			w.gone = true
			l.waiting--
			close(w.ready)
			return
		}
	}
}

func (l *fairLimiter) dropLeft() {
	l.turn = slices.DeleteFunc(l.turn, func(module string) bool {
		queue := slices.DeleteFunc(l.queues[module], func(w *waiter) bool { return w.left })
		l.queues[module] = queue
		if len(queue) == 0 {
			delete(l.queues, module)
		}
		return len(queue) == 0
	})
}
