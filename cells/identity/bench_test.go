// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
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
		operatortest.Eventually(b, "pods come late", func() bool { return held.Hits(b) > 0 })
		for i := range sets {
			w.pod(fmt.Sprint("web-", i), pairs{"app": fmt.Sprint("web-", i)})
		}
		b.StartTimer()
		held.Remove(b)
		operatortest.Eventually(b, "all have identities", func() bool {
			w.controller.mu.Lock()
			defer w.controller.mu.Unlock()
			return w.controller.table.used == sets && len(w.controller.table.objects) == sets
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
// the answer to the request for a pod to that for its identity. The budget is
// 100 ms for 99 of 100.
func BenchmarkServerLatency(b *testing.B) {
	const perSecond, before = 200, 20
	w := newWorld(b)
	w.start()
	var mu sync.Mutex
	made, borne := map[string]time.Time{}, map[string]time.Time{}
	cancel := w.controller.Observe(func(pod types.NamespacedName) {
		_, exists := w.controller.ForPod(pod)
		mu.Lock()
		defer mu.Unlock()
		if exists && borne[pod.Name].IsZero() {
			borne[pod.Name] = time.Now()
		}
	})
	defer cancel()
	pod := func(n int) {
		name := fmt.Sprint("web-", n)
		w.pod(name, pairs{"app": name})
		mu.Lock()
		defer mu.Unlock()
		made[name] = time.Now()
	}
	for n := range before { // connections, and what the server does once
		pod(n)
	}
	clear(made)
	tick := time.NewTicker(time.Second / perSecond)
	defer tick.Stop()
	var busy sync.WaitGroup
	n := before
	for b.Loop() {
		<-tick.C
		at := n
		busy.Go(func() { pod(at) })
		n++
	}
	busy.Wait()
	operatortest.Eventually(b, "all have identities", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(borne) == n
	})
	var all []time.Duration
	for name, at := range made {
		all = append(all, max(0, borne[name].Sub(at)))
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(w.mean(b, "pod", "enqueued"), "queue-ms") // our own part
	b.ReportMetric(w.mean(b, "cid", "processing"), "request-ms")
}

// mean is that of a latency, in milliseconds.
func (w *world) mean(b *testing.B, resource, phase string) float64 {
	var m dto.Metric
	if err := w.controller.Metrics.Latency.WithLabelValues(resource, phase).(prometheus.Metric).Write(&m); err != nil {
		b.Fatal(err)
	}
	return m.GetHistogram().GetSampleSum() / float64(m.GetHistogram().GetSampleCount()) * 1000
}
