// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package sweep

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/skep-operator/skep/resources/k8s"
)

// Batches have as many as are allowed, wait for the rate of all of them, and are in the cause. What was reset meanwhile is
// not deleted; what has no outcome failed, and stays due.
func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec := usual
		spec.Batch, spec.Rate = 40, rate.NewLimiter(10, 1)
		var results []Result
		spec.Ended = func(res Result) { results = append(results, res) }
		r := newRig(t, spec)
		r.Sweep.spec.Delete, r.Sweep.spec.Check = nil, nil
		r.Sweep.spec.DeleteBatch = func(ctx context.Context, all []string) ([]Outcome, error) {
			r.set(func() { r.note("delete %d from %s", len(all), all[0]) })
			if got := k8s.CauseOf(ctx); got.Rule != "test collect" || len(got.Triggers) != len(all) || got.Triggers[1].Name != all[1] {
				t.Errorf("the cause is %q", got)
			}
			outcomes := slices.Repeat([]Outcome{Deleted}, len(all))
			switch all[0] {
			case "thing-000":
				outcomes[3] = Changed
				r.Reset(func(key string) bool { return key == "thing-050" })
			case "thing-080":
				return outcomes[:5], errors.New("no answer")
			}
			r.set(func() {
				r.garbage = slices.DeleteFunc(slices.Clone(r.garbage), func(g string) bool { return slices.Contains(all, g) })
			})
			return outcomes, nil
		}
		r.garbage, r.total = names(100), 1000
		r.start()
		time.Sleep(grace + 11*time.Second - 600*time.Millisecond)
		synctest.Wait()
		r.happened("0s scan", "1m0s scan", "1m3.9s delete 40 from thing-000", "1m7.9s delete 39 from thing-040", "1m9.9s delete 20 from thing-080")
		if want := fmt.Sprint(map[Outcome]int{Deleted: 39 + 39 + 5, Changed: 1, Failed: 15}); len(results) == 0 || fmt.Sprint(results[len(results)-1].Outcomes) != want {
			t.Errorf("the outcomes are %v, want %s", results, want)
		}
		r.stop()
		r.counted("deleted 83, changed 1, failed 15")
	})
}

// K8S-19: a batch that panics is halved down to the object, which alone fails.
func TestABatchThatPanicsIsHalved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec := usual
		spec.Batch, spec.Rate = 8, rate.NewLimiter(1000, 8)
		r := newRig(t, spec)
		r.Sweep.spec.Delete, r.Sweep.spec.Check = nil, nil
		r.Sweep.spec.DeleteBatch = func(_ context.Context, all []string) ([]Outcome, error) {
			if slices.Contains(all, "thing-003") {
				panic("whoops")
			}
			r.set(func() {
				r.garbage = slices.DeleteFunc(slices.Clone(r.garbage), func(g string) bool { return slices.Contains(all, g) })
			})
			return slices.Repeat([]Outcome{Deleted}, len(all)), nil
		}
		r.garbage, r.total = names(8), 1000
		r.start()
		time.Sleep(grace + time.Second)
		synctest.Wait()
		if left := r.left(); !slices.Equal(left, []string{"thing-003"}) {
			t.Errorf("%q are left", left)
		}
		r.isDegraded(t, "1 objects are spared because their handling panicked: handling Thing thing-003 panicked at resources/sweep/batch_test.go:")
		r.stop()
	})
}
