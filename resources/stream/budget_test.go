// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream_test

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"testing"

	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/resources/stream/streamtest"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// The budgets that are bytes and counts. Times are in the benchmarks.

func needsRealMemory(t *testing.T) {
	t.Helper()
	if testing.Short() || seedtest.RaceEnabled {
		t.Skip("needs seconds, and memory without the race detector's")
	}
}

// budgetPeak is the budget of resident memory of the initial state of pods, in bytes.
const budgetPeak = 90e6

func TestBudgetInitialSync(t *testing.T) {
	needsRealMemory(t)
	for of, watchList := range map[streamtest.SyncOf]bool{streamtest.SyncBudgetPods: true, streamtest.SyncEndpoints: true} {
		url := streamtest.StartServer(t, string(of), benchPods)
		u := leastPeak(t, url, of, watchList)
		perObject := u.Live / benchPods
		t.Logf("%s: %d B per object with an index, %d MB peak, CPU %v, wall %v", of, perObject, u.Peak/1e6, u.CPU, u.Wall)
		if u.Objects != benchPods {
			t.Fatalf("%d objects", u.Objects)
		}
		if perObject > 400 {
			t.Errorf("%s: %d B of heap per object, the budget is 400", of, perObject)
		}
		if of == streamtest.SyncBudgetPods && u.Peak > budgetPeak {
			t.Errorf("%s: %d MB resident at most, the budget is %d", of, u.Peak/1e6, int(budgetPeak/1e6))
		}
	}
}

// leastPeak measures up to three times: on a loaded machine the garbage collector comes late.
func leastPeak(t *testing.T, url string, of streamtest.SyncOf, watchList bool) streamtest.Usage {
	t.Helper()
	least := streamtest.MeasureSync(t, url, of, watchList)
	for n := 1; n < 3 && of == streamtest.SyncBudgetPods && least.Peak > budgetPeak; n++ {
		if u := streamtest.MeasureSync(t, url, of, watchList); u.Peak < least.Peak {
			least = u
		}
	}
	return least
}

func TestBudgetWatchUpdate(t *testing.T) {
	needsRealMemory(t)
	url := streamtest.StartServer(t, "pods", 1000)
	result := testing.Benchmark(func(b *testing.B) { streamtest.WatchUpdates(b, url) })
	if result.N == 0 {
		t.Fatal("the benchmark has failed")
	}
	t.Log(result, result.MemString())
	if n := result.AllocsPerOp(); n > 10 {
		t.Errorf("%d allocations per update, the budget is 10", n)
	}
}

func TestBudgetFanOut(t *testing.T) {
	needsRealMemory(t)
	result := testing.Benchmark(func(b *testing.B) { streamtest.FanOut(b, 4) })
	if result.N == 0 {
		t.Fatal("the benchmark has failed")
	}
	t.Log(result, result.MemString())
	if n := float64(result.MemAllocs) / float64(result.N); n > 0.01 {
		t.Errorf("%.3f allocations per update to 4 subscribers, the budget is 0", n)
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func newPods(n int) []*slim.Pod {
	pods := make([]*slim.Pod, n)
	namespace := slim.MakeString("default")
	for i := range pods {
		pods[i] = &slim.Pod{}
		pods[i].Name, pods[i].Namespace = fmt.Sprintf("pod-%07d", i), namespace
	}
	return pods
}

func newLocal(t testing.TB) *stream.Local[slim.Pod] {
	t.Helper()
	l, err := stream.NewLocal[slim.Pod]()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// synced begins a loop over changes and takes what makes up the initial state.
func synced(t *testing.T, changes iter.Seq[stream.Batch[slim.Pod]]) {
	t.Helper()
	next, stop := iter.Pull(changes)
	t.Cleanup(stop)
	for {
		if batch, ok := next(); !ok {
			t.Fatal("the loop has ended")
		} else if batch.Synced {
			return
		}
	}
}

func TestBudgetOverhead(t *testing.T) {
	needsRealMemory(t)
	const n, subscribers = 100_000, 10
	pods := newPods(n)
	before := heap()
	l := newLocal(t)
	l.Replace(pods...)
	perObject := (heap() - before) / n

	before = heap()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range subscribers {
		synced(t, l.Changes(ctx))
	}
	perSubscriber := float64(heap()-before) / n / subscribers
	t.Logf("%d B per object beyond the object, %.2f B per object and subscriber", perObject, perSubscriber)
	if perObject > 160 {
		t.Errorf("%d B per object beyond the object, the budget is 160", perObject)
	}
	if perSubscriber > .2 {
		t.Errorf("%.2f B per object and subscriber, the budget is 0.2", perSubscriber)
	}
	runtime.KeepAlive(pods)
}

// A subscriber that has stopped for ten minutes at a thousand updates a second.
func TestBudgetSlowSubscriber(t *testing.T) {
	needsRealMemory(t)
	const keys, updates = 100_000, 600_000
	l := newLocal(t)
	l.Replace(newPods(keys)...)
	synced(t, l.Changes(t.Context(), stream.WithSubscriberName("stuck"))) // and takes nothing any more
	before := heap()
	for round := range updates / keys {
		for i, pod := range newPods(keys) {
			l.Upsert(pod)
			if i%1000 == 0 { // some go for ever
				gone := &slim.Pod{}
				gone.Name = fmt.Sprint("short-lived-", round, "-", i)
				l.Upsert(gone)
				l.Delete(gone.Key())
			}
		}
	}
	growth := heap() - before
	state := l.State()
	t.Logf("growth %d B, state %+v", growth, state.Subscribers)
	if growth > 1<<20 {
		t.Errorf("a subscriber that has stopped costs %d bytes, the budget is 1 MiB", growth)
	}
	if got := state.Subscribers[0].Pending; got != keys {
		t.Errorf("State says that %d keys are pending, want %d", got, keys)
	}
}

func TestBudgetUnused(t *testing.T) {
	needsRealMemory(t)
	const n = 1000
	source := stream.NewSource(nil)
	streams := make([]*stream.Stream[slim.Pod], n)
	before, goroutines := heap(), runtime.NumGoroutine()
	for i := range streams {
		s, err := stream.New(source, stream.Pods)
		if err != nil {
			t.Fatal(err)
		}
		streams[i] = s
	}
	each := (heap() - before) / n
	t.Logf("%d B per stream that has no user", each)
	if each > 1<<10 {
		t.Errorf("%d B per stream that has no user, the budget is 1 KiB", each)
	}
	if now := runtime.NumGoroutine(); now > goroutines {
		t.Errorf("%d goroutines, %d before", now, goroutines)
	}
	runtime.KeepAlive(streams)
}
