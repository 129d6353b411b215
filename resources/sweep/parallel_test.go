// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package sweep

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/skep-operator/skep/resources/internal/workers"
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

func (r *rig) left() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.garbage)
}

// isDegraded checks that health says so, and nothing else.
func (r *rig) isDegraded(t *testing.T, text string) {
	t.Helper()
	if got := r.tree.Degraded(); len(got) != 1 || !strings.HasPrefix(got[0].Message+": "+got[0].Error, text) {
		t.Errorf("degraded: %v, want %q", got, text)
	}
}

// K8S-19: a panic of Check or Delete is that of its object, which fails alone and is due again with the next sweep.
func TestAPanicIsThatOfItsObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec := usual
		spec.Workers = 2
		r := newRig(t, spec)
		r.garbage, r.total = names(5), 1000
		var mended atomic.Bool
		delete := r.Sweep.spec.Delete
		r.Sweep.spec.Delete = func(ctx context.Context, name string) (Outcome, error) {
			if name == "thing-003" && !mended.Load() {
				panic("whoops")
			}
			return delete(ctx, name)
		}
		check := r.Sweep.spec.Check
		r.Sweep.spec.Check = func(ctx context.Context, name string) (bool, error) {
			if name == "thing-001" && !mended.Load() {
				panic("ouch")
			}
			return check(ctx, name)
		}
		r.start()
		time.Sleep(grace + time.Second)
		synctest.Wait()
		if left := r.left(); !slices.Equal(left, []string{"thing-001", "thing-003"}) {
			t.Errorf("%q are left", left)
		}
		r.isDegraded(t, "2 objects are spared because their handling panicked")
		time.Sleep(spec.Interval)
		mended.Store(true)
		time.Sleep(spec.Interval)
		synctest.Wait()
		if left := r.left(); len(left) > 0 || len(r.tree.Degraded()) > 0 {
			t.Errorf("%q are left, degraded: %v", left, r.tree.Degraded())
		}
		r.stop()
		if n := strings.Count(r.log.String(), "stack="); n != 2 {
			t.Errorf("%d stacks in the log, want one for each object:\n%s", n, &r.log)
		}
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

// K8S-21: a delete that does not return holds a stop for six seconds, and the error names the object.
func TestADeleteThatDoesNotReturnIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		r.garbage, r.total = names(2), 1000
		release := make(chan struct{})
		r.Sweep.spec.Delete = func(context.Context, string) (Outcome, error) {
			<-release
			return Deleted, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()
		time.Sleep(grace + time.Second)
		began := time.Now()
		cancel()
		err := <-ended
		if took := time.Since(began); took != workers.Grace || err == nil ||
			!strings.Contains(err.Error(), "test collect, Thing thing-000 hangs; it stands at:\n  func literal in sweep.TestADelete") {
			t.Errorf("after %s: %v", took, err)
		}
		close(release)
	})
}
