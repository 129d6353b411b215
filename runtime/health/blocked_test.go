// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-operator/skep/runtime/health"
)

func TestAWaitDegradesAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := health.NewTree()
		job := tree.Reporter("duty.job")
		job.OK("at work")
		ctx := health.NewContext(t.Context(), job)
		began := time.Now()

		pods := health.ReportBlocked(ctx, "pods", "not listed yet")
		time.Sleep(5*time.Second - 1)
		synctest.Wait()
		if got := tree.Degraded(); len(got) > 0 {
			t.Errorf("degraded at once: %+v", got)
		}
		nodes := health.ReportBlocked(ctx, "nodes.example.org", "not listed yet")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		want := health.Status{
			ID: "duty.job.waits-for-pods", Level: health.Degraded, Message: "not listed yet",
			Since: began.Add(5 * time.Second), Reports: 1,
		}
		if diff := cmp.Diff([]health.Status{want}, tree.Degraded()); diff != "" {
			t.Error(diff)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]string{"duty.job.waits-for-nodes", "duty.job.waits-for-pods"}, ids(tree.Degraded())); diff != "" {
			t.Error(diff)
		}
		pods()
		if diff := cmp.Diff([]string{"duty.job", "duty.job.waits-for-nodes"}, ids(tree.Snapshot())); diff != "" {
			t.Error(diff)
		}
		nodes()
		nodes()
		if s := tree.Snapshot(); len(s) != 1 || s[0].Message != "at work" || s[0].Reports != 1 {
			t.Errorf("the part is not as it was: %+v", s)
		}
	})
}

// A wait that is over is not reported any more, however soon that is.
func TestAShortWaitIsNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := health.NewTree()
		ctx := health.NewContext(t.Context(), tree.Reporter("duty"))
		for _, took := range []time.Duration{0, 5*time.Second - 1} {
			over := health.ReportBlocked(ctx, "pods", "not listed yet")
			time.Sleep(took)
			over()
		}
		time.Sleep(time.Minute)
		if got := tree.Snapshot(); len(got) > 0 {
			t.Errorf("reported: %+v", got)
		}
	})
}

func TestNobodyHearsOfAWaitWithoutReporter(t *testing.T) {
	health.ReportBlocked(context.Background(), "pods", "not listed yet")()
}
