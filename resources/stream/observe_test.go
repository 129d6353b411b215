// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/job"
)

// TestObserve sees every event once, in order and one at a time, and ends with
// its job.
func TestObserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods, err := stream.NewLocal[slim.Pod]()
		if err != nil {
			t.Fatal(err)
		}
		pods.Replace(pod("a"))
		var seen []string // by one goroutine at a time
		group := job.NewGroup("test", slog.New(slog.NewTextHandler(io.Discard, nil)), health.NewTree().Reporter("test"), job.Hooks{})
		group.Add("see", stream.Observe(pods, func(_ context.Context, e stream.Event[slim.Pod]) {
			seen = append(seen, fmt.Sprint(e.Kind, " ", e.Key.Name))
		}, stream.Named("test")))
		if err := group.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		pods.Upsert(pod("a"))
		synctest.Wait()
		pods.Delete(slim.Key{Name: "a"})
		synctest.Wait()
		if subscribers := pods.State().Subscribers; len(subscribers) != 1 || subscribers[0].Name != "test" || subscribers[0].InFlight != 0 {
			t.Errorf("subscribers: %+v", subscribers)
		}
		if err := group.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if want := []string{"upsert a", "sync ", "upsert a", "delete a"}; !slices.Equal(seen, want) {
			t.Errorf("saw %q, want %q", seen, want)
		}
		if n := len(pods.State().Subscribers); n != 0 {
			t.Errorf("%d subscribers are left", n)
		}
	})
}

func pod(name string) *slim.Pod {
	p := &slim.Pod{}
	p.Name = name
	return p
}
