// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package waittest

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"
)

const (
	// tick is how often a meter gets a processor on a machine that is not stalled.
	tick = 10 * time.Millisecond
	// stall is the pause between two ticks from which on the machine is taken for stalled.
	stall = 50 * time.Millisecond
	// countEvery is how often a meter counts the tasks of the machine that want a processor.
	countEvery = 100 * time.Millisecond
	// maxTasks is how many of them for each processor a meter believes in: more make no limit longer.
	maxTasks = 6
)

// Meter measures how long something takes on a machine that lets it run. A stall, during
// which the test's process gets no processor, counts as one tick: what is under test runs on
// the same machine, and did not get one either. While more tasks want a processor than there
// are, time counts as slower as each gets less of one. A test that judges how long a program
// takes judges by a meter. It is safe for concurrent use, and is stopped by its owner.
type Meter struct {
	stop  func()
	tasks func() float64 // that want a processor, for each processor; nil for one

	mu      sync.Mutex
	counted time.Time // when slow was
	slow    float64   // how much slower time counts, at least 1
	last    time.Time
	elapsed time.Duration
	stalled time.Duration
}

// StartMeter returns a meter that runs until it is stopped.
func StartMeter() *Meter { return startMeter(tasksPerProcessor) }

func startMeter(tasks func() float64) *Meter {
	done, ended := make(chan struct{}), make(chan struct{})
	m := &Meter{tasks: tasks, last: time.Now(), stop: sync.OnceFunc(func() {
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

// Elapsed is the time since the start without stalls, and less of it while the machine is busy.
func (m *Meter) Elapsed() time.Duration {
	m.advance(time.Now())
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.elapsed
}

// Stalled is the time since the start that Elapsed leaves out for stalls and for a busy machine.
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
	if m.tasks != nil && now.Sub(m.counted) >= countEvery {
		m.counted, m.slow = now, min(max(m.tasks(), 1), maxTasks)
	}
	counts := time.Duration(float64(passed) / max(m.slow, 1))
	m.stalled += passed - counts
	m.elapsed += counts
}

// tasksPerProcessor is how many tasks of the machine run or wait for a processor, for each processor and without the caller. It
// is 0 where the kernel does not tell.
func tasksPerProcessor() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	var average float64
	var running int
	if _, err := fmt.Sscanf(string(text), "%f %f %f %d/", &average, &average, &average, &running); err != nil {
		return 0
	}
	return float64(running-1) / float64(runtime.NumCPU())
}
