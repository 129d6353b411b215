// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/job"
)

// waiters are jobs that wait for a stream, each in its way. They end with ctx.
var waiters = map[string]func(context.Context, stream.Resource[slim.Pod]) error{
	"store": func(ctx context.Context, pods stream.Resource[slim.Pod]) error {
		_, err := pods.Store(ctx)
		<-ctx.Done()
		return err
	},
	"changes": func(ctx context.Context, pods stream.Resource[slim.Pod]) error {
		for range pods.Changes(ctx) {
		}
		return nil
	},
	"reach": func(ctx context.Context, pods stream.Resource[slim.Pod]) error {
		err := pods.WaitForRevision(ctx, 0)
		<-ctx.Done()
		return err
	},
}

// Who cannot begin because of a stream is degraded, for as long.
func TestWhoWaitsForAStreamSaysSo(t *testing.T) {
	for name, wait := range waiters {
		for _, end := range []string{"complete", "stopped"} {
			t.Run(name+" "+end, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					pods, err := stream.NewLocal[slim.Pod](stream.WithName("pods.example.org"))
					if err != nil {
						t.Fatal(err)
					}
					tree := health.NewTree()
					group := job.NewGroup("duty", tree.Reporter("duty"), job.Hooks{})
					group.Add("wait", job.OneShot(func(ctx context.Context) error { return wait(ctx, pods) }))
					if err := group.Start(t.Context()); err != nil {
						t.Fatal(err)
					}
					degraded := func() (ids []string) {
						synctest.Wait()
						for _, s := range tree.Degraded() {
							ids = append(ids, s.ID)
						}
						return ids
					}
					if got := degraded(); got != nil {
						t.Errorf("degraded at once: %v", got)
					}
					time.Sleep(5 * time.Second)
					if diff := cmp.Diff([]string{"duty.job-wait.waits-for-pods"}, degraded()); diff != "" {
						t.Error(diff)
					}
					if end == "complete" {
						pods.Synced()
						if got := degraded(); got != nil {
							t.Errorf("still degraded: %v", got)
						}
					}
					if err := group.Stop(t.Context()); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					if got := tree.Snapshot(); len(got) > 0 {
						t.Errorf("left in the tree: %+v", got)
					}
				})
			})
		}
	}
}
