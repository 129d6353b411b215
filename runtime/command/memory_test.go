// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package command

import (
	"context"
	"runtime"
	"runtime/metrics"
	"testing"
	"testing/synctest"
	"time"
)

// What a burst of work has left behind is returned to the system once the process rests.
func TestMemoryIsReleasedAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const burst = 64 << 20
		before := held()
		allocate(burst)
		if during := held(); during < before+burst/2 {
			t.Fatalf("%d bytes are held after an allocation of %d, %d before", during, burst, before)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go releaseAtRest(ctx)
		time.Sleep(restPeriod + time.Second)
		if after := held(); after > before+burst/4 {
			t.Errorf("%d bytes are held at rest, %d before", after, before)
		}
	})
}

//go:noinline
func allocate(n int) { runtime.KeepAlive(make([]byte, n)) }

// held is the heap that the process has from the system.
func held() (n uint64) {
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/unused:bytes"},
	}
	metrics.Read(samples)
	for _, s := range samples {
		n += s.Value.Uint64()
	}
	return n
}

func TestRested(t *testing.T) {
	for _, test := range []struct {
		collected uint64
		want      bool
	}{{0, true}, {1, true}, {2, false}, {30, false}} {
		if got := rested(7, 7+test.collected); got != test.want {
			t.Errorf("%d collections in a period: rested %v, want %v", test.collected, got, test.want)
		}
	}
}
