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

// pace spaces the requests of a stream: none waits as long as all goes well, and
// after a failure, or a connection that ended early, the next one waits a delay
// that grows until a connection has lived for some time.
type pace struct {
	timing timing

	mu      sync.Mutex
	delays  wait.Backoff
	fails   bool
	least   time.Duration // asked for by the server
	started time.Time     // of the last request
}

func newPace(t timing) *pace { return &pace{timing: t, delays: t.delays(t.retry)} }

func (t timing) delays(first time.Duration) wait.Backoff {
	return wait.Backoff{Duration: first, Factor: 2, Jitter: .5, Steps: 32, Cap: t.retryMax}
}

// patience is how long a stream waits for a definition that cannot be watched
// before it asks for the resource again.
func (t timing) patience(misses int) time.Duration {
	return min(t.forbidden<<min(misses, 16), max(t.retryMax, t.forbidden))
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

// forbid makes the next request wait for somebody to change permissions.
func (p *pace) forbid() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fails = true
	p.least = p.timing.forbidden
}

// await returns when the next request may start; the error is the context's.
func (p *pace) await(ctx context.Context) error {
	p.mu.Lock()
	var delay time.Duration
	if p.fails {
		if !p.started.IsZero() && time.Since(p.started) > p.timing.settled {
			p.delays = p.timing.delays(p.timing.retry)
		}
		delay = max(p.delays.Step(), p.least)
	}
	p.fails, p.least = false, 0
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
