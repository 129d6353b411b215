// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package sweep

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/skep-operator/skep/runtime/lifecycle"
)

// Deletes that take their time are made side by side, as many as are allowed, and
// no faster than the rate.
func TestWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most, all atomic.Int32
		spec := usual
		spec.Workers, spec.Rate = 8, rate.NewLimiter(100, 1)
		r := newRig(t, spec)
		r.garbage, r.total = names(100), 1000
		r.Sweep.spec.Delete = func(context.Context, string) (Outcome, error) {
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			time.Sleep(time.Second)
			all.Add(1)
			return Deleted, nil
		}
		r.start()
		time.Sleep(grace + 14*time.Second) // 13 rounds of eight
		synctest.Wait()
		if most.Load() != 8 || all.Load() != 100 {
			t.Errorf("%d deletes, at most %d at once", all.Load(), most.Load())
		}
		r.stop()
		r.counted("deleted 100")
	})
}

// A panic of a worker is one of the sweep, and no more deletes are begun.
func TestWorkerPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec := usual
		spec.Workers = 2
		r := newRig(t, spec)
		r.garbage, r.total = names(20), 1000
		deletes := 0
		r.Sweep.spec.Delete = func(_ context.Context, name string) (Outcome, error) {
			deletes++ // the rate keeps them apart
			if name == "thing-003" {
				panic("whoops")
			}
			return Deleted, nil
		}
		defer func() {
			hit, _ := recover().(*lifecycle.PanicError)
			if hit == nil || hit.Value != "whoops" || deletes != 4 {
				t.Errorf("%v after %d deletes", hit, deletes)
			}
		}()
		_ = r.Run(t.Context())
	})
}

// What waits is seen, and deleted by the sweep that does not let it wait any more.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		var since []time.Duration
		r.Sweep.spec.Scan = func(context.Context) (Found[string, string], error) {
			first, ok := r.FirstSeen("a")
			if ok {
				since = append(since, time.Since(first))
			}
			wait := time.Since(r.began) < 12*time.Minute
			return Found[string, string]{Total: 1, Candidates: []Candidate[string, string]{{Key: "a", Object: "a", Wait: wait}}}, nil
		}
		r.start()
		time.Sleep(14 * time.Minute)
		r.happened()
		time.Sleep(2 * time.Minute)
		r.happened("15m0s delete a: <nil>")
		if want := []time.Duration{5 * time.Minute, 10 * time.Minute, 15 * time.Minute}; !slices.Equal(since, want) {
			t.Errorf("seen since %v, want %v", since, want)
		}
		r.stop()
	})
}

// Each sweep is told how it ended, that which is told to stop too.
func TestEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec := usual
		var ended []Result
		spec.Ended = func(r Result) { ended = append(ended, r) }
		r := newRig(t, spec)
		r.garbage, r.total, r.fails = names(3), 10, map[string]error{"thing-001": errors.New("no")}
		r.start()
		time.Sleep(grace + 100*time.Millisecond)
		r.set(func() { r.garbage, r.fails, r.scanErr = names(20), nil, errors.New("incomplete") })
		time.Sleep(1500 * time.Millisecond)
		r.set(func() { r.scanErr = nil })
		time.Sleep(2 * time.Minute) // seen, and found implausible
		r.set(func() { r.total = 1000 })
		time.Sleep(4*time.Minute + 1500*time.Millisecond)
		r.stop() // while it deletes
		var said []string
		for _, e := range ended {
			switch {
			case e.Err == nil:
				said = append(said, "success")
			case isLimited(e.Err):
				said = append(said, "braked")
			case errors.Is(e.Err, context.Canceled):
				said = append(said, "stopped")
			default:
				said = append(said, "fail")
			}
		}
		if want := []string{"success", "fail", "fail", "success", "braked", "stopped"}; !slices.Equal(said, want) {
			t.Fatalf("they ended as %v, want %v", said, want)
		}
		if e := ended[1]; e.Outcomes[Deleted] != 2 || e.Outcomes[Failed] != 1 || e.Took != 100*time.Millisecond {
			t.Errorf("the sweep that failed ended as %+v", e)
		}
	})
}
