// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reconcile

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A loop whose job is not declared is degraded as soon as keys wait for it; one that begins late is not any more.
func TestALoopWithoutAJobIsDegraded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		l := NewQueue(r.scope, "allocate", func(context.Context, string) error { return nil })
		time.Sleep(time.Minute)
		if d := r.degraded(); len(d) > 0 {
			t.Errorf("without keys: %q", d)
		}
		l.Add("a")
		l.Add("b")
		time.Sleep(10 * time.Second)
		want := []string{"ipam.test.loop-allocate.waits-for-job: keys are queued, and no job runs the queue: declare cell.Job with the queue's Job"}
		if d := r.degraded(); !slices.Equal(d, want) {
			t.Errorf("degraded: %q", d)
		}
		r.run(t, l.Run)
		synctest.Wait()
		if d := r.degraded(); len(d) > 0 {
			t.Errorf("it runs: %q", d)
		}
		r.stop()
	})
}
