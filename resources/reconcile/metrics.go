// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reconcile

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/skep-operator/skep/runtime/metrics"
)

// queueMetrics are those of the work queues of all modules. A nil pointer counts nothing.
type queueMetrics struct {
	Depth      *prometheus.GaugeVec
	Adds       *prometheus.CounterVec
	Latency    *prometheus.HistogramVec
	Work       *prometheus.HistogramVec
	Unfinished *prometheus.GaugeVec
	Longest    *prometheus.GaugeVec
	Retries    *prometheus.CounterVec
	Runs       *prometheus.CounterVec // of the groups that are selected
	Panics     *prometheus.CounterVec

	// Their names since 1.19.
	KubernetesDepth, KubernetesAdds, KubernetesLatency, KubernetesWork, KubernetesUnfinished, KubernetesLongest, KubernetesRetries *metrics.Also
}

func newQueueMetrics(f metrics.Factory) *queueMetrics {
	const queueName = "queue_name"
	q, seconds := f.In("workqueue"), prometheus.ExponentialBuckets(0.001, 4, 9)
	m := &queueMetrics{
		Depth:      q.GaugeVec("depth", "Keys that wait for a worker", queueName),
		Adds:       q.CounterVec("adds_total", "Keys that were added, except those that waited already", queueName),
		Latency:    q.HistogramVec("queue_duration_seconds", "Seconds that keys waited for a worker", seconds, queueName),
		Work:       q.HistogramVec("work_duration_seconds", "Seconds that attempts took", seconds, queueName),
		Unfinished: q.GaugeVec("unfinished_work_seconds", "Seconds that the attempts under way have taken, in total", queueName),
		Longest:    q.GaugeVec("longest_running_processor_seconds", "Seconds that the longest attempt under way has taken", queueName),
		Retries:    q.CounterVec("retries_total", "Keys that were scheduled again, after a failure or because they asked for it", queueName),
		Runs:       f.In("").CounterVec("controllers_group_runs_total", "Attempts of the work queues that controller-group-metrics selects", "group_name", "status"),
		Panics:     f.In("").CounterVec("panics_total", "Panics while an object was handled, which then waits while others go on", "module"),
	}
	also := func(name string, of prometheus.Collector) *metrics.Also {
		return f.In("").Also("k8s_workqueue_"+name, "workqueue_"+name, of, "name="+queueName)
	}
	m.KubernetesDepth, m.KubernetesAdds, m.KubernetesRetries = also("depth", m.Depth), also("adds_total", m.Adds), also("retries_total", m.Retries)
	m.KubernetesLatency, m.KubernetesWork = also("queue_duration_seconds", m.Latency), also("work_duration_seconds", m.Work)
	m.KubernetesUnfinished, m.KubernetesLongest = also("unfinished_work_seconds", m.Unfinished), also("longest_running_processor_seconds", m.Longest)
	return m
}

// provider returns nil without metrics, as client-go has it.
func (m *queueMetrics) provider() workqueue.MetricsProvider {
	if m == nil {
		return nil
	}
	return queueMetricsProvider{m}
}

// forget removes the gauges of a queue that has ended.
func (m *queueMetrics) forget(queue string) {
	if m == nil {
		return
	}
	for _, gauge := range []*prometheus.GaugeVec{m.Depth, m.Unfinished, m.Longest} {
		gauge.DeleteLabelValues(queue)
	}
}

// panicCounter counts the panics of a module.
func (m *queueMetrics) panicCounter(module string) func() {
	if m == nil {
		return nil
	}
	return func() { m.Panics.WithLabelValues(module).Inc() }
}

// recordRun counts an attempt of a queue whose group is selected.
func (m *queueMetrics) recordRun(queue string, failed bool) {
	if m == nil {
		return
	}
	status := "success"
	if failed {
		status = "failure"
	}
	m.Runs.WithLabelValues(queue, status).Inc()
}

// gaugePeriod is how often a work queue sets the gauges of attempts under way.
const gaugePeriod = 2 * time.Second

// gaugeClock is the clock of a work queue. Its tickers are those of the gauges: client-go sets them twice a second,
// for each queue of an operator that may be idle, and they are scraped far less often.
type gaugeClock struct{ clock.RealClock }

// NewTicker implements clock.WithTicker.
func (c gaugeClock) NewTicker(period time.Duration) clock.Ticker {
	return c.RealClock.NewTicker(max(period, gaugePeriod))
}

type queueMetricsProvider struct{ *queueMetrics }

func (p queueMetricsProvider) NewDepthMetric(queue string) workqueue.GaugeMetric {
	return p.Depth.WithLabelValues(queue)
}

func (p queueMetricsProvider) NewAddsMetric(queue string) workqueue.CounterMetric {
	return p.Adds.WithLabelValues(queue)
}

func (p queueMetricsProvider) NewLatencyMetric(queue string) workqueue.HistogramMetric {
	return p.Latency.WithLabelValues(queue)
}

func (p queueMetricsProvider) NewWorkDurationMetric(queue string) workqueue.HistogramMetric {
	return p.Work.WithLabelValues(queue)
}

func (p queueMetricsProvider) NewUnfinishedWorkSecondsMetric(queue string) workqueue.SettableGaugeMetric {
	return p.Unfinished.WithLabelValues(queue)
}

func (p queueMetricsProvider) NewLongestRunningProcessorSecondsMetric(queue string) workqueue.SettableGaugeMetric {
	return p.Longest.WithLabelValues(queue)
}

func (p queueMetricsProvider) NewRetriesMetric(queue string) workqueue.CounterMetric {
	return p.Retries.WithLabelValues(queue)
}
