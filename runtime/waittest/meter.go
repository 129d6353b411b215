// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package waittest

import (
	"sync"
	"time"
)

const (
	// tick is how often a meter gets a processor on a machine that is not stalled.
	tick = 10 * time.Millisecond
	// stall is the pause between two ticks from which on the machine is taken for stalled.
	stall = 50 * time.Millisecond
)

// Meter measures how long something takes on a machine that lets it run. A stall, during
// which the test's process gets no processor, counts as one tick: what is under test runs on
// the same machine, and did not get one either. A test that judges how long a program takes
// judges by a meter. It is safe for concurrent use, and is stopped by its owner.
type Meter struct {
	stop func()

	mu      sync.Mutex
	last    time.Time
	elapsed time.Duration
	stalled time.Duration
}

// StartMeter returns a meter that runs until it is stopped.
func StartMeter() *Meter {
	done, ended := make(chan struct{}), make(chan struct{})
	m := &Meter{last: time.Now(), stop: sync.OnceFunc(func() {
		close(done)
		<-ended
	})}
	go func() {
		defer close(ended)
		ticker := time.NewTicker(tick)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				m.advance(time.Now())
			case <-done:
				return
			}
		}
	}()
	return m
}

// Stop ends the meter's goroutine.
func (m *Meter) Stop() { m.stop() }

// Restart sets the meter to zero.
func (m *Meter) Restart() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last, m.elapsed, m.stalled = time.Now(), 0, 0
}

// Elapsed is the time since the start without stalls.
func (m *Meter) Elapsed() time.Duration {
	m.advance(time.Now())
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.elapsed
}

// Stalled is the time since the start that Elapsed leaves out.
func (m *Meter) Stalled() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stalled
}

func (m *Meter) advance(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	passed := now.Sub(m.last)
	if passed < 0 { // another goroutine was later and faster
		return
	}
	m.last = now
	if passed >= stall {
		m.stalled += passed - tick
		passed = tick
	}
	m.elapsed += passed
}
