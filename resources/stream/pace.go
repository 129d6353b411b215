// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

// pace spaces the requests of a stream: none waits as long as all goes well.
//
//   - After a failure the next one waits a delay that grows with failures in a row:
//     until something was read, or a connection has lived for some time.
//   - After a connection that ended early it waits a delay that grows, too, and stays
//     short: what is cut again and again is up to date in between.
type pace struct {
	timing timing

	mu      sync.Mutex
	delays  wait.Backoff // after failures
	fails   bool
	cuts    wait.Backoff // after connections that ended early
	cut     bool
	least   time.Duration // asked for by the server
	refused int           // how often in a row, with 403
	started time.Time     // of the last request
}

func newPace(t timing) *pace {
	return &pace{timing: t, delays: t.delays(t.retryMax), cuts: t.delays(t.cutMax)}
}

func (t timing) delays(last time.Duration) wait.Backoff {
	return wait.Backoff{Duration: t.retry, Factor: 2, Jitter: .5, Steps: 32, Cap: last}
}

// patience is how long a stream waits for a definition that cannot be watched
// before it asks for the resource again.
func (t timing) patience(misses int) time.Duration {
	return min(t.absent<<min(misses, 16), t.refusals)
}

// fail makes the next request wait.
func (p *pace) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fails = true
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		p.least = time.Duration(seconds) * time.Second
	}
}

// forbid makes the next request wait for somebody to change permissions. One
// refusal among answers is no more than a hiccup.
func (p *pace) forbid() {
	p.mu.Lock()
	least := min(p.timing.forbidden<<min(p.refused, 16), p.timing.refusals)
	p.refused++
	p.mu.Unlock()
	p.rest(least)
}

// answered ends a row of refusals.
func (p *pace) answered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused = 0
}

// read ends a row of failures: something came that could be read.
func (p *pace) read() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delays = p.timing.delays(p.timing.retryMax)
}

// endedEarly makes the next request wait a little.
func (p *pace) endedEarly() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
}

// rest makes the next request wait for at least so long.
func (p *pace) rest(least time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fails = true
	p.least = least
}

// await returns when the next request may start; the error is the context's.
func (p *pace) await(ctx context.Context) error {
	p.mu.Lock()
	if !p.started.IsZero() && time.Since(p.started) > p.timing.settled {
		p.delays, p.cuts = p.timing.delays(p.timing.retryMax), p.timing.delays(p.timing.cutMax)
	}
	delay := p.least
	if p.fails {
		delay = max(delay, p.delays.Step())
	}
	if p.cut {
		delay = max(delay, p.cuts.Step())
	}
	p.fails, p.cut, p.least = false, false, 0
	p.mu.Unlock()
	if delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	p.mu.Lock()
	p.started = time.Now()
	p.mu.Unlock()
	return context.Cause(ctx)
}
