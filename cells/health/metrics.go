// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/logging"
)

const namespace = "cilium_operator"

type healthMetrics struct {
	Problems *prometheus.CounterVec
}

func newMetrics() *healthMetrics {
	return &healthMetrics{Problems: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Name: "errors_warnings_total", Help: "Warnings and errors in the log",
	}, []string{"level", "subsystem"})}
}

// registerStandard registers what the original always has.
func registerStandard(m *healthMetrics, log *logging.Log, r prometheus.Registerer, tree *health.Tree) error {
	log.CountProblems(func(level, subsys string) { m.Problems.WithLabelValues(level, subsys).Inc() })
	for _, c := range []prometheus.Collector{
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{Namespace: namespace}),
		collectors.NewGoCollector(),
		statusCollector{tree},
	} {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// statusCollector counts health reports by level; levels that nothing is at
// are left out.
type statusCollector struct{ tree *health.Tree }

var statusDesc = prometheus.NewDesc("cilium_hive_status", "How many parts report each level of health", []string{"status"}, nil)

func (statusCollector) Describe(c chan<- *prometheus.Desc) { c <- statusDesc }

func (s statusCollector) Collect(c chan<- prometheus.Metric) {
	counts := map[health.Level]int{}
	for _, status := range s.tree.Snapshot() {
		counts[status.Level]++
	}
	for level, n := range counts {
		c <- prometheus.MustNewConstMetric(statusDesc, prometheus.GaugeValue, float64(n), levelNames[level])
	}
}

var levelNames = map[health.Level]string{health.OK: "ok", health.Degraded: "degraded", health.Stopped: "stopped"}
