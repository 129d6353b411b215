// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive

import (
	"fmt"
	"log/slog"
	"reflect"
	goruntime "runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/config"
	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/internal/resolve"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
	"github.com/skep-operator/skep/runtime/logging"
	"github.com/skep-operator/skep/runtime/metrics"
)

// builtins are what the hive offers to every constructor.
var builtins = []resolve.BuiltinSpec{
	{Type: reflect.TypeFor[cell.ModuleInfo](), PerModule: true},
	{Type: reflect.TypeFor[*slog.Logger](), PerModule: true},
	{Type: reflect.TypeFor[health.Reporter](), PerModule: true},
	{Type: reflect.TypeFor[job.Group](), PerModule: true},
	{Type: reflect.TypeFor[prometheus.Registerer](), PerModule: true},
	{Type: reflect.TypeFor[cell.BuildInfo]()},
	{Type: reflect.TypeFor[*health.Tree]()},
	{Type: reflect.TypeFor[*metrics.Registry]()},
	{Type: reflect.TypeFor[*config.Values]()},
	{Type: reflect.TypeFor[*logging.Log]()},
	{Type: reflect.TypeFor[lifecycle.Shutdown]()},
	{Type: reflect.TypeFor[graph.Source]()},
}

// builtinValue makes the value of a builtin node for a scope.
func (s *scope) builtinValue(n *resolve.Node) reflect.Value {
	h := s.hive
	key := n.Results[0].Key
	var value any
	switch key.Type {
	case reflect.TypeFor[cell.ModuleInfo]():
		value = cell.ModuleInfo{ID: n.For.Label(), Title: n.For.Title, Term: s.name()}
	case reflect.TypeFor[*slog.Logger]():
		value = h.log.Logger(n.For.Label())
	case reflect.TypeFor[health.Reporter]():
		value = s.module(n.For).health
	case reflect.TypeFor[job.Group]():
		value = s.module(n.For).jobs
	case reflect.TypeFor[prometheus.Registerer]():
		value = s.module(n.For).metrics
	case reflect.TypeFor[cell.BuildInfo]():
		value = h.buildInfo()
	case reflect.TypeFor[*health.Tree]():
		value = h.health
	case reflect.TypeFor[*metrics.Registry]():
		value = h.metrics
	case reflect.TypeFor[*config.Values]():
		value = h.values
	case reflect.TypeFor[*logging.Log]():
		value = h.log
	case reflect.TypeFor[lifecycle.Shutdown]():
		value = lifecycle.Shutdown(h.requestShutdown)
	case reflect.TypeFor[graph.Source]():
		value = graph.Source(h.Graph)
	case reflect.TypeFor[lifecycle.Term]():
		value = h.terms[key.Name]
	}
	// The type asked for may be an interface that the value satisfies.
	v := reflect.New(key.Type).Elem()
	v.Set(reflect.ValueOf(value))
	return v
}

func (h *Hive) buildInfo() cell.BuildInfo {
	return cell.BuildInfo{Name: h.name, Version: h.options.version}
}

// jobMetrics are the metrics of a hive and of all its jobs.
type jobMetrics struct {
	Runs     *prometheus.CounterVec
	Duration *prometheus.HistogramVec

	// Those that other operators of its kind have.
	JobRuns, JobFailures *prometheus.CounterVec
	Version              *prometheus.GaugeVec
	Start                prometheus.Gauge
}

func newJobMetrics(namespace, version string) *jobMetrics {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, []string{"module_id", "job_name"})
	}
	m := &jobMetrics{
		JobRuns:     counter("hive_jobs_runs_total", "Runs of background jobs, whatever came of them"),
		JobFailures: counter("hive_jobs_runs_failed", "Runs of background jobs that failed"),
		Version: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Name: "version", Help: "1, with the version of the program",
		}, []string{"version", "revision", "arch"}),
		Start: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Name: "hive_start_duration", Help: "Seconds that the start of the program took",
		}),
		Runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "job_runs_total", Help: "Runs of background jobs",
		}, []string{"module", "job", "outcome"}),
		Duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "job_run_duration_seconds", Help: "How long runs of background jobs took",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 10),
		}, []string{"module", "job"}),
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

func (m *jobMetrics) record(module, name string, took time.Duration, err error) {
	outcome := "success"
	if err != nil {
		outcome = "fail"
	}
	m.Runs.WithLabelValues(module, name, outcome).Inc()
	m.JobRuns.WithLabelValues(module, name).Inc()
	if err != nil {
		m.JobFailures.WithLabelValues(module, name).Inc()
	}
	m.Duration.WithLabelValues(module, name).Observe(took.Seconds())
}

// declaredCollectors runs a constructor of metrics.
func declaredCollectors(n *resolve.Node) ([]prometheus.Collector, error) {
	made, err := resolve.CallWithConfigs(n.Fn, nil)
	if err == nil && n.ReturnsError() && !made[1].IsNil() {
		err, _ = reflect.TypeAssert[error](made[1])
	}
	if err != nil {
		return nil, err
	}
	return metrics.Collectors(made[0].Interface())
}

// DeclaredMetrics are the metrics of enabled modules, by name. Of all
// constructors it runs only those of metrics, which take nothing.
func (h *Hive) DeclaredMetrics() ([]metrics.Metric, error) {
	if err := h.Select(); err != nil {
		return nil, err
	}
	list := metrics.Describe("hive", []prometheus.Collector{h.jobs.Runs, h.jobs.Duration})
	for _, n := range h.graph.Nodes {
		if !n.Metrics || !n.Module.Enabled {
			continue
		}
		collectors, err := declaredCollectors(n)
		if err != nil {
			return nil, fmt.Errorf("metrics of %s: %w", n.Module.Label(), err)
		}
		list = append(list, metrics.Describe(n.Module.ID, collectors)...)
	}
	slices.SortFunc(list, func(a, b metrics.Metric) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}
