// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/stream/streamtest"
)

const benchPods = 100_000

func BenchmarkInitialSync(b *testing.B) {
	for _, of := range []streamtest.SyncOf{streamtest.SyncBudgetPods, streamtest.SyncPods, streamtest.SyncEndpoints} {
		for name, watchList := range map[string]bool{"watchlist": true, "list": false} {
			b.Run(fmt.Sprintf("%s/%s", of, name), func(b *testing.B) {
				url := streamtest.StartServer(b, string(of), benchPods)
				var sum streamtest.Usage
				for b.Loop() {
					u := streamtest.MeasureSync(b, url, of, watchList)
					if u.Objects != benchPods {
						b.Fatalf("%d objects, want %d", u.Objects, benchPods)
					}
					sum.CPU += u.CPU
					sum.Wall += u.Wall
					sum.Peak += u.Peak
					sum.Live += u.Live
				}
				n := float64(b.N)
				b.ReportMetric(sum.CPU.Seconds()/n, "cpu-s/op")
				b.ReportMetric(sum.Wall.Seconds()/n, "wall-s/op")
				b.ReportMetric(float64(sum.Peak)/n/1e6, "peak-MB")
				b.ReportMetric(float64(sum.Live)/n/benchPods, "live-B/object")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

func BenchmarkWatchUpdate(b *testing.B) {
	streamtest.WatchUpdates(b, streamtest.StartServer(b, "pods", 1000))
}

func BenchmarkFanOut(b *testing.B) {
	for _, subscribers := range []int{1, 4, 16} {
		b.Run(fmt.Sprint(subscribers), func(b *testing.B) { streamtest.FanOut(b, subscribers) })
	}
}

// The time from a change to the subscriber that waits for it.
func BenchmarkLatency(b *testing.B) {
	l := newLocal(b)
	l.Synced()
	times := make([]time.Duration, b.N)
	began, next := make(chan time.Time, 1), make(chan struct{})
	go func() {
		n := 0
		for batch := range l.Changes(b.Context()) {
			if len(batch.Changes) > 0 {
				times[n] = time.Since(<-began)
				n++
			}
			next <- struct{}{}
		}
	}()
	<-next
	pods := newPods(b.N)
	b.ResetTimer()
	for _, pod := range pods {
		began <- time.Now()
		l.Upsert(pod)
		<-next
	}
	b.StopTimer()
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds()), "p99-ns")
}

// Reading all of 100,000 objects at one revision.
func BenchmarkStoreAll(b *testing.B) {
	l := newLocal(b)
	l.Replace(newPods(benchPods)...)
	store, err := l.Store(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for pod := range store.All() {
			n += len(pod.Name)
		}
	}
}
