// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package leading

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrFenced is the error of a write that came too late: its term has ended or
// the fence's deadline has passed. Where the request was under way, it is not known
// whether it took effect. It is not the error of reads, which pass no fence, and not of a
// write that the server refused; another term may repeat the write.
var ErrFenced = errors.New("fenced: this process may not write any more, the lease was not renewed in time or the term has ended")

// Clock reads the time. Production has one; tests turn both hands.
type Clock struct {
	// Monotonic is compared by differences only; it stands still while the
	// machine sleeps.
	Monotonic func() time.Duration
	// Wall may jump either way.
	Wall func() time.Time
}

var processStart = time.Now()

// SystemClock is the machine's clock.
var SystemClock = Clock{
	Monotonic: func() time.Duration { return time.Since(processStart) },
	Wall:      func() time.Time { return time.Now().Round(0) },
}

// Fence is the right to write during one term. It is open until its deadline,
// on the monotonic and on the wall clock, whichever comes first, and never
// opens again once it was closed or missed. It is safe for concurrent use.
type Fence struct {
	clock Clock
	// Unfenced writers hold no lease that could be lost.
	unlimited bool

	ctx    context.Context
	cancel context.CancelCauseFunc

	mu        sync.Mutex
	monotonic time.Duration
	wall      time.Time
	closed    bool
	timer     *time.Timer
	onClose   []func()
}

// NewFence returns a fence that is open for d from the given moment, as read
// from the clock before the lease was asked for.
func NewFence(clock Clock, from Moment, d time.Duration) *Fence {
	f := &Fence{clock: clock}
	f.ctx, f.cancel = context.WithCancelCause(context.Background())
	f.timer = time.AfterFunc(time.Hour, f.expire)
	f.Extend(from, d)
	return f
}

// Unfenced returns a fence without a deadline, for a process that leads without
// a lease. Only Close shuts it.
func Unfenced() *Fence {
	f := &Fence{clock: SystemClock, unlimited: true}
	f.ctx, f.cancel = context.WithCancelCause(context.Background())
	return f
}

// Moment is a reading of both hands of a clock.
type Moment struct {
	Monotonic time.Duration
	Wall      time.Time
}

// Now reads the clock.
func (c Clock) Now() Moment { return Moment{c.Monotonic(), c.Wall()} }

// Extend moves the deadline to d after the given moment. It reports false when
// the fence is shut already: too late.
func (f *Fence) Extend(from Moment, d time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.unlimited {
		return !f.closed
	}
	if f.monotonic != 0 && f.passed() { // not the first time
		return false
	}
	f.monotonic, f.wall = from.Monotonic+d, from.Wall.Add(d)
	f.timer.Reset(max(0, f.monotonic-f.clock.Monotonic()))
	return true
}

// Check returns ErrFenced once the fence is shut.
func (f *Fence) Check() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.passed() {
		return ErrFenced
	}
	return nil
}

// passed is called with the lock held.
func (f *Fence) passed() bool {
	if f.closed || f.unlimited {
		return f.closed
	}
	return f.clock.Monotonic() >= f.monotonic || !f.clock.Wall().Before(f.wall)
}

// Context ends when the fence shuts, with ErrFenced as cause.
func (f *Fence) Context() context.Context { return f.ctx }

// expire runs when the timer fires. The deadline may have moved meanwhile, and
// the timer says nothing about the wall clock: Check does.
func (f *Fence) expire() {
	if f.Check() != nil {
		f.Close()
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.timer.Reset(max(time.Millisecond, f.monotonic-f.clock.Monotonic()))
}

// Close shuts the fence for good: contexts end, connections close, what the
// kernel has not sent yet is dropped. It may be called more than once.
func (f *Fence) Close() {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return
	}
	f.closed = true
	if f.timer != nil {
		f.timer.Stop()
	}
	callbacks := f.onClose
	f.onClose = nil
	f.mu.Unlock()
	f.cancel(ErrFenced)
	for _, c := range callbacks {
		c()
	}
}

// OnClose calls c when the fence closes, or now if it has.
func (f *Fence) OnClose(c func()) {
	f.mu.Lock()
	if !f.closed {
		f.onClose = append(f.onClose, c)
		f.mu.Unlock()
		return
	}
	f.mu.Unlock()
	c()
}

// String says how long the fence stays open.
func (f *Fence) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.passed():
		return "shut"
	case f.unlimited:
		return "open without a deadline"
	}
	return fmt.Sprintf("open for %s", (f.monotonic - f.clock.Monotonic()).Round(time.Millisecond))
}
