// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
)

// CES-E7: changes of a slice make one write, when it has been quiet or the first has waited long enough. One that is full
// does not wait, and takes with it what waits.
func TestWhenASliceIsWritten(t *testing.T) {
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		changes []time.Duration
		full    time.Duration // 0: never
		writes  []time.Duration
	}{
		"one change":              {changes: []time.Duration{0}, writes: []time.Duration{500 * ms}},
		"many at once":            {changes: []time.Duration{0, 0, 0}, writes: []time.Duration{500 * ms}},
		"many within 400 ms":      {changes: []time.Duration{0, 100 * ms, 200 * ms, 400 * ms}, writes: []time.Duration{900 * ms}},
		"the last begins anew":    {changes: []time.Duration{0, 300 * ms}, writes: []time.Duration{800 * ms}},
		"no slice waits for long": {changes: []time.Duration{0, 400 * ms, 800 * ms, 1200 * ms}, writes: []time.Duration{900 * ms, 1700 * ms}},
		"two apart":               {changes: []time.Duration{0, 600 * ms}, writes: []time.Duration{500 * ms, 1100 * ms}},
		"full":                    {changes: []time.Duration{0, 100 * ms}, full: 200 * ms, writes: []time.Duration{200 * ms}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var writes []time.Duration
				c := &controller{planner: newPlanner(100, false, randomName), batch: newBatch(), wake: make(chan struct{}, 1)}
				deps := reconcile.Deps{Module: cell.ModuleInfo{ID: "endpointslice"}, Log: slog.New(slog.DiscardHandler), Health: health.NewTree().Reporter("endpointslice")}
				c.standard = reconcile.NewQueue(deps, "gather", func(context.Context, sliceKey) error {
					writes = append(writes, time.Since(start))
					return nil
				}, reconcile.Workers(1))
				ctx, cancel := context.WithCancel(t.Context())
				defer synctest.Wait()
				defer cancel()
				go c.runBatch(ctx)
				go c.standard.Run(ctx)

				change := func(at time.Duration, full bool) {
					time.Sleep(at - time.Since(start))
					c.mu.Lock()
					c.batch.add("ces-1", time.Now(), full)
					c.mu.Unlock()
					c.wakeBatcher()
				}
				for _, at := range test.changes {
					change(at, false)
				}
				if test.full > 0 {
					change(test.full, true)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if !slices.Equal(writes, test.writes) {
					t.Errorf("written after %v, not after %v", writes, test.writes)
				}
			})
		})
	}
}
