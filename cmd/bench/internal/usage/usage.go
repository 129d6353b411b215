// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package usage

import (
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// CPU is the user and system time of the process so far, in seconds.
func CPU() (float64, error) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0, fmt.Errorf("reading the CPU time: %w", err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano()).Seconds(), nil
}

// Resident is the memory that the process has resident, in bytes: now, and the
// most that it had at once.
func Resident() (now, peak float64, err error) {
	if now, err = status("VmRSS"); err == nil {
		peak, err = status("VmHWM")
	}
	return now, peak, err
}

func status(field string) (float64, error) {
	const file = "/proc/self/status"
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("reading how much memory is resident: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if kb, ok := strings.CutPrefix(line, field+":"); ok {
			n, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(kb), " kB"), 64)
			return n * 1024, err
		}
	}
	return 0, fmt.Errorf("%s has no %s: resident memory can be measured on Linux only", file, field)
}

// Heap is what is alive after collections, in bytes. It collects until what
// goroutines and finalizers let go has gone.
func Heap() float64 {
	const tries, pause = 20, 20 * time.Millisecond
	var m runtime.MemStats
	last := -1.0
	for range tries {
		runtime.GC()
		runtime.ReadMemStats(&m)
		heap := float64(m.HeapAlloc)
		if last >= 0 && last-heap < .002*last {
			return heap
		}
		last = heap
		time.Sleep(pause)
	}
	return last
}

// Count is what the process has used up to a moment.
type Count struct {
	Wall                      time.Time
	CPU                       float64 // seconds
	Allocations, AllocedBytes float64
}

// Now reads the count.
func Now() (c Count, err error) {
	if c.CPU, err = CPU(); err != nil {
		return c, err
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	c.Allocations, c.AllocedBytes, c.Wall = float64(m.Mallocs), float64(m.TotalAlloc), time.Now()
	return c, nil
}

// Since is what was used between two counts, Wall in seconds.
type Since struct{ Wall, CPU, Allocations, AllocedBytes float64 }

// Since returns what was used since the count.
func (c Count) Since() (Since, error) {
	now, err := Now()
	return Since{
		Wall: now.Wall.Sub(c.Wall).Seconds(), CPU: now.CPU - c.CPU,
		Allocations: now.Allocations - c.Allocations, AllocedBytes: now.AllocedBytes - c.AllocedBytes,
	}, err
}

// WatchHeap samples the live heap, as the collector last found it, until stop is
// called, which returns the most that it saw, in bytes.
func WatchHeap() (stop func() float64) {
	const every = 5 * time.Millisecond
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	end, peak := make(chan struct{}), make(chan float64)
	go func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		most := uint64(0)
		for {
			metrics.Read(sample)
			most = max(most, sample[0].Value.Uint64())
			select {
			case <-ticker.C:
			case <-end:
				peak <- float64(most)
				return
			}
		}
	}()
	return func() float64 {
		close(end)
		return <-peak
	}
}
