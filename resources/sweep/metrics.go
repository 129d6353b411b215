// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package sweep

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// sweepMetrics are about the sweeps of all modules.
type sweepMetrics struct {
	Runs     *prometheus.CounterVec
	Duration *prometheus.HistogramVec
	Objects  *prometheus.CounterVec
	Waiting  *prometheus.GaugeVec
	// Terminating objects are deleted, and wait for their finalizers.
	Terminating *prometheus.GaugeVec
	Limited     *prometheus.GaugeVec
}

// The outcomes of a sweep.
const (
	runSucceeded = "success"
	runFailed    = "fail"
	runLimited   = "braked"
)

func newMetrics() *sweepMetrics {
	const ns, sub = "cilium_operator", "sweep"
	return &sweepMetrics{
		Runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: ns, Subsystem: sub, Name: "runs_total", Help: "Sweeps for garbage; a braked one would have deleted more than is plausible",
		}, []string{"module", "outcome"}),
		Duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: ns, Subsystem: sub, Name: "duration_seconds", Help: "How long sweeps took",
			Buckets: prometheus.ExponentialBuckets(0.001, 8, 7),
		}, []string{"module"}),
		Objects: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: ns, Subsystem: sub, Name: "objects_total", Help: "What became of objects that were to be deleted",
		}, []string{"module", "outcome"}),
		Waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: ns, Subsystem: sub, Name: "waiting", Help: "Objects that look like garbage and are not deleted yet",
		}, []string{"module"}),
		Terminating: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: ns, Subsystem: sub, Name: "terminating", Help: "Objects that were deleted and wait for their finalizers",
		}, []string{"module"}),
		Limited: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: ns, Subsystem: sub, Name: "braked", Help: "1 while sweeps delete nothing because they would delete more than is plausible",
		}, []string{"module"}),
	}
}

// moduleMetrics are those of one module.
type moduleMetrics struct {
	all    *sweepMetrics
	module string
}

func (m *sweepMetrics) forModule(module string) moduleMetrics { return moduleMetrics{m, module} }

func (m moduleMetrics) recordRun(outcome string, took time.Duration) {
	m.all.Runs.WithLabelValues(m.module, outcome).Inc()
	m.all.Duration.WithLabelValues(m.module).Observe(took.Seconds())
	limited := 0.0
	if outcome == runLimited {
		limited = 1
	}
	m.all.Limited.WithLabelValues(m.module).Set(limited)
}

func (m moduleMetrics) countObject(o Outcome) {
	m.all.Objects.WithLabelValues(m.module, string(o)).Inc()
}

func (m moduleMetrics) waiting(n int) {
	m.all.Waiting.WithLabelValues(m.module).Set(float64(n))
}

func (m moduleMetrics) terminating(n int) {
	m.all.Terminating.WithLabelValues(m.module).Set(float64(n))
}

// reset sets the gauges to zero, for a sweep that runs no more.
func (m moduleMetrics) reset() {
	m.waiting(0)
	m.terminating(0)
	m.all.Limited.WithLabelValues(m.module).Set(0)
}
