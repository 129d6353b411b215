// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive

import (
	goruntime "runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/metrics"
)

// ownMetrics are the metrics of a hive and of all its jobs.
type ownMetrics struct {
	Runs     *prometheus.CounterVec
	Duration *prometheus.HistogramVec

	// Those that other operators of its kind have. They count the same runs by the kind of job, and not by their outcome.
	JobRuns, JobFailures         *prometheus.CounterVec
	OneShotLast                  *prometheus.GaugeVec
	TimerLast, ObserverLast      *prometheus.GaugeVec
	TimerRuns, ObserverRuns      *prometheus.HistogramVec
	Version                      *prometheus.GaugeVec
	StartDuration, BuildDuration prometheus.Gauge
}

func newOwnMetrics(namespace, version string) *ownMetrics {
	const moduleID, jobName = "module_id", "job_name"
	f, buckets := metrics.Factory{Namespace: namespace}, prometheus.ExponentialBuckets(0.001, 4, 10)
	jobs := f.In("hive_jobs")
	last := func(kind job.Kind) *prometheus.GaugeVec {
		return jobs.GaugeVec(string(kind)+"_last_run_duration_seconds", "How long the last run of a background job of the kind "+string(kind)+" took", moduleID, jobName)
	}
	runs := func(kind job.Kind) *prometheus.HistogramVec {
		return jobs.HistogramVec(string(kind)+"_run_duration_seconds", "How long runs of background jobs of the kind "+string(kind)+" took", buckets, moduleID, jobName)
	}
	m := &ownMetrics{
		Runs:     f.CounterVec("job_runs_total", "Runs of background jobs", "module", "job", "outcome"),
		Duration: f.HistogramVec("job_run_duration_seconds", "How long runs of background jobs took", buckets, "module", "job"),

		JobRuns:     jobs.CounterVec("runs_total", "Runs of background jobs, whatever came of them", moduleID, jobName),
		JobFailures: jobs.CounterVec("runs_failed", "Runs of background jobs that failed", moduleID, jobName),
		OneShotLast: last(job.KindOneShot), TimerLast: last(job.KindTimer), ObserverLast: last(job.KindObserver),
		TimerRuns: runs(job.KindTimer), ObserverRuns: runs(job.KindObserver),
		Version:       f.GaugeVec("version", "1, with the version of the program", "version", "revision", "arch"),
		StartDuration: f.Gauge("hive_start_duration", "Seconds that the start of hooks and jobs took, without those of terms"),
		BuildDuration: f.Gauge("hive_populate_duration", "Seconds that the checks of the configuration and the constructors took, without those of terms"),
	}
	m.Version.WithLabelValues(version, revision(), goruntime.GOARCH).Set(1)
	return m
}

// revision is the commit that the program was built from, "" if that is not known.
func revision() string {
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return ""
	}
	i := slices.IndexFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "vcs.revision" })
	if i < 0 {
		return ""
	}
	return info.Settings[i].Value
}

// collectors are all of them. None is missing, as newOwnMetrics sets each field.
func (m *ownMetrics) collectors() []prometheus.Collector {
	all, _ := metrics.Collectors(m)
	return all
}

// recordRun counts a run of a job of a module.
func (m *ownMetrics) recordRun(module string, r job.Run) {
	outcome := "success"
	m.JobRuns.WithLabelValues(module, r.Job).Inc()
	if r.Err != nil {
		outcome = "fail"
		m.JobFailures.WithLabelValues(module, r.Job).Inc()
	}
	took := r.Took.Seconds()
	m.Runs.WithLabelValues(module, r.Job, outcome).Inc()
	m.Duration.WithLabelValues(module, r.Job).Observe(took)
	switch r.Kind {
	case job.KindOneShot:
		m.OneShotLast.WithLabelValues(module, r.Job).Set(took)
	case job.KindTimer:
		m.TimerLast.WithLabelValues(module, r.Job).Set(took)
		m.TimerRuns.WithLabelValues(module, r.Job).Observe(took)
	case job.KindObserver:
		m.ObserverLast.WithLabelValues(module, r.Job).Set(took)
		m.ObserverRuns.WithLabelValues(module, r.Job).Observe(took)
	}
}

// timeOf sets a gauge to the seconds since a time.
func timeOf(g prometheus.Gauge, began time.Time) { g.Set(time.Since(began).Seconds()) }
