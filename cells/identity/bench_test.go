// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/skep-operator/skep/cells/internal/termtest"
	"github.com/skep-operator/skep/resources/clustertest"
)

// BenchmarkServerBurst is 1,000 pods with new labels that are seen at once: the
// time until all their identities are there. The budget is 2 s.
func BenchmarkServerBurst(b *testing.B) {
	const sets = 1000
	w := newWorld(b)
	w.start()
	for b.Loop() {
		b.StopTimer()
		w.clear()
		held := w.proxy.HoldWatch(b, "pods", 0)
		w.proxy.CutWatches(b, clustertest.Match{Resources: []string{"pods"}})
		termtest.Eventually(b, "pods come late", func() bool { return held.Hits(b) > 0 })
		for i := range sets {
			w.pod(fmt.Sprint("web-", i), pairs{"app": fmt.Sprint("web-", i)})
		}
		b.StartTimer()
		held.Remove(b)
		termtest.Eventually(b, "all have identities", func() bool {
			w.maker.mu.Lock()
			defer w.maker.mu.Unlock()
			return w.maker.table.used == sets && len(w.maker.table.objects) == sets
		})
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/1000-sets")
	b.ReportMetric(float64(w.bare(sets).Milliseconds()), "bare-ms")
}

// bare is how long it takes to make as many identities with as many at once, and
// nothing else: what the API server needs on this machine at this time.
func (w *world) bare(sets int) time.Duration {
	w.clear()
	var all sync.WaitGroup
	began := time.Now()
	for i := range writers {
		all.Go(func() {
			for n := i; n < sets; n += writers {
				w.identity(fmt.Sprint(1000+n), w.with(pairs{"app": fmt.Sprint("web-", n)}))
			}
		})
	}
	all.Wait()
	return time.Since(began)
}

// BenchmarkServerLatency makes 200 pods with new labels a second: the time from
// before the request that makes the pod to the answer that made its identity. The budget is 100 ms for
// 99 of 100.
func BenchmarkServerLatency(b *testing.B) {
	const perSecond = 200
	w := newWorld(b)
	w.start()
	var mu sync.Mutex
	made, took := map[string]time.Time{}, map[string]time.Duration{}
	cancel := w.maker.Observe(func(pod types.NamespacedName) {
		_, exists := w.maker.Of(pod)
		mu.Lock()
		defer mu.Unlock()
		if at, ok := made[pod.Name]; ok && exists && took[pod.Name] == 0 {
			took[pod.Name] = time.Since(at)
		}
	})
	defer cancel()
	tick := time.NewTicker(time.Second / perSecond)
	defer tick.Stop()
	var busy sync.WaitGroup
	n := 0
	for b.Loop() {
		<-tick.C
		name := fmt.Sprint("web-", n)
		n++
		busy.Go(func() {
			mu.Lock()
			made[name] = time.Now()
			mu.Unlock()
			w.pod(name, pairs{"app": name})
		})
	}
	busy.Wait()
	termtest.Eventually(b, "all have identities", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(took) == n
	})
	var all []time.Duration
	for _, d := range took {
		all = append(all, d)
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
}
