// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package waittest

import (
	"os"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestMeterLeavesStallsOut(t *testing.T) {
	start := time.Now()
	m := &Meter{last: start}
	for _, at := range []time.Duration{10, 20, 65, 60, 70, 3070, 3080} {
		m.advance(start.Add(at * time.Millisecond))
	}
	if m.elapsed != 90*time.Millisecond || m.Stalled() != 2990*time.Millisecond {
		t.Errorf("elapsed %s, stalled %s", m.elapsed, m.Stalled())
	}
}

func TestMeterIsSlowOnABusyMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tasks := 4.0
		m := startMeter(func() float64 { return tasks })
		defer m.Stop()
		time.Sleep(time.Minute) // of the bubble's clock
		if e, s := m.Elapsed(), m.Stalled(); e != 15*time.Second || s != 45*time.Second {
			t.Errorf("four tasks for each processor: elapsed %s, stalled %s", e, s)
		}
		tasks = 1000
		m.Restart()
		time.Sleep(time.Minute) // of the bubble's clock
		if e := m.Elapsed(); e < 9*time.Second || e > 11*time.Second {
			t.Errorf("a thousand: elapsed %s", e)
		}
	})
}

func TestTasksPerProcessor(t *testing.T) {
	if _, err := os.Stat("/proc/loadavg"); err != nil {
		t.Skip("the kernel does not tell")
	}
	stop := make(chan struct{})
	var busy sync.WaitGroup
	for range 3 * runtime.NumCPU() {
		busy.Add(1)
		go func() {
			defer busy.Done()
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
			}
		}()
	}
	defer func() { close(stop); busy.Wait() }()
	Until(t, "the machine is busy", func() bool { return tasksPerProcessor() > .4 })
}

func TestMeterTicksByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMeter(func() float64 { return 0 })
		defer m.Stop()
		time.Sleep(time.Minute) // of the bubble's clock
		if m.Elapsed() != time.Minute || m.Stalled() != 0 {
			t.Errorf("after a minute: elapsed %s, stalled %s", m.Elapsed(), m.Stalled())
		}
		m.Restart()
		time.Sleep(time.Second) // of the bubble's clock
		if m.Elapsed() != time.Second {
			t.Errorf("a second after the restart: elapsed %s", m.Elapsed())
		}
	})
}
