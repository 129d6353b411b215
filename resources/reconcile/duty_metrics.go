// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reconcile

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/runtime/metrics"
)

// DutyMetrics are those of the work queue of a duty under the names that another operator has for the duty: it asks for its work by triggers,
// of which several that wait are one. They differ from those that every queue has in that they count what was asked for.
type DutyMetrics struct {
	Queued   prometheus.Counter
	Folds    prometheus.Gauge
	Duration prometheus.Histogram
	Latency  prometheus.Histogram
}

// NewDutyMetrics makes the metrics of a duty. work is what an attempt does, and begins a sentence.
func NewDutyMetrics(f metrics.Factory, duty, work string) *DutyMetrics {
	seconds := prometheus.ExponentialBuckets(0.001, 4, 9)
	return &DutyMetrics{
		Queued:   f.Counter(duty+"_queued_total", work+": how often it was asked for"),
		Folds:    f.Gauge(duty+"_folds", work+": how often it was asked for before the last attempt, which was for all of these"),
		Duration: f.Histogram(duty+"_duration_seconds", work+": how long attempts took", seconds),
		Latency:  f.Histogram(duty+"_latency_seconds", work+": how long it waited since it was asked for", seconds),
	}
}

// CountedAs has a queue count for metrics of duties, for several if its attempts do the work of all of them. Nil ones are not counted.
func CountedAs(all ...*DutyMetrics) Option {
	all = slices.DeleteFunc(all, func(m *DutyMetrics) bool { return m == nil })
	return func(o *options) { o.duties = all }
}

// requests are the Adds of keys since their last attempt began. Without metrics nothing is kept.
type requests[K comparable] struct {
	duties  []*DutyMetrics
	waiting map[K]request
}

type request struct {
	since time.Time
	adds  int
}

func newRequests[K comparable](duties []*DutyMetrics) requests[K] {
	return requests[K]{duties, map[K]request{}}
}

// added counts an Add.
func (r *requests[K]) added(key K) {
	if len(r.duties) == 0 {
		return
	}
	w, waits := r.waiting[key]
	if !waits {
		w.since = time.Now()
	}
	w.adds++
	r.waiting[key] = w
	for _, m := range r.duties {
		m.Queued.Inc()
	}
}

// begun counts the start of an attempt: of what was asked for, how long that waited. Retries wait by their back-off, which is no latency.
func (r *requests[K]) begun(key K) {
	w, asked := r.waiting[key]
	if !asked {
		return
	}
	delete(r.waiting, key)
	if len(r.waiting) == 0 { // a map keeps the size that it had when all objects arrived
		r.waiting = map[K]request{}
	}
	for _, m := range r.duties {
		m.Folds.Set(float64(w.adds))
		m.Latency.Observe(time.Since(w.since).Seconds())
	}
}

// ended counts an attempt that began at a time.
func (r *requests[K]) ended(began time.Time) {
	for _, m := range r.duties {
		m.Duration.Observe(time.Since(began).Seconds())
	}
}
