// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reflector

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

// requestBackoff delays the requests of a stream after errors.
//
//   - After a failure the next one waits a delay that grows with failures in a row:
//     until something was read, or a connection has lived for some time.
//   - After a connection that ended early it waits a delay that grows, too, and stays
//     short: such a stream is up to date in between.
type requestBackoff struct {
	timing timing

	mu      sync.Mutex
	delays  wait.Backoff // after failures
	failed  bool
	cuts    wait.Backoff // after connections that ended early
	cut     bool
	least   time.Duration // required by the server
	refused int           // how often in a row, with 403
	expired int           // how often in a row the server required a relist
	started time.Time     // of the last request
}

func newRequestBackoff(t timing) *requestBackoff {
	return &requestBackoff{timing: t, delays: t.delays(t.retryMax), cuts: t.delays(t.cutMax)}
}

func (t timing) delays(last time.Duration) wait.Backoff {
	return wait.Backoff{Duration: t.retry, Factor: 2, Jitter: .5, Steps: 32, Cap: last}
}

// crdPollDelay is how long a stream waits for a definition that cannot be watched
// before it requests the resource again.
func (t timing) crdPollDelay(notFoundCount int) time.Duration {
	return min(t.absent<<min(notFoundCount, 16), t.refusals)
}

// recordFailure makes the next request wait.
func (p *requestBackoff) recordFailure(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = true
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		p.least = time.Duration(seconds) * time.Second
	}
}

// forbidden makes the next request wait, longer with every 403 in a row: permissions
// change rarely, and a single 403 means little.
func (p *requestBackoff) forbidden() {
	p.mu.Lock()
	least := min(p.timing.forbidden<<min(p.refused, 16), p.timing.refusals)
	p.refused++
	p.mu.Unlock()
	p.waitAtLeast(least)
}

// answered ends a row of 403s.
func (p *requestBackoff) answered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused = 0
}

// freshStarts is how many relists in a row compactions and restored backups cause.
const freshStarts = 2

// recordExpired records that the server requires a relist. It reports whether that
// happens repeatedly: then the next request waits.
func (p *requestBackoff) recordExpired() (again bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expired++
	return p.expired > freshStarts
}

// reset ends a row of failures: something was read.
func (p *requestBackoff) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delays = p.timing.delays(p.timing.retryMax)
	p.expired = 0
}

// endedEarly makes the next request wait a little.
func (p *requestBackoff) endedEarly() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
}

// waitAtLeast makes the next request wait for at least so long.
func (p *requestBackoff) waitAtLeast(least time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = true
	p.least = least
}

// await returns when the next request may start; the error is the context's.
func (p *requestBackoff) await(ctx context.Context) error {
	p.mu.Lock()
	if !p.started.IsZero() && time.Since(p.started) > p.timing.stableAfter {
		p.delays, p.cuts = p.timing.delays(p.timing.retryMax), p.timing.delays(p.timing.cutMax)
	}
	delay := p.least
	if p.failed {
		delay = max(delay, p.delays.Step())
	}
	if p.cut {
		delay = max(delay, p.cuts.Step())
	}
	p.failed, p.cut, p.least = false, false, 0
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
