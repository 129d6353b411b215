// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/lifecycle"
	"github.com/skep-operator/skep/runtime/logging"
	"github.com/skep-operator/skep/runtime/metrics"
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

func newMetricsServer(c Config, registry *metrics.Registry, log *slog.Logger, h health.Reporter) lifecycle.Hook {
	if !c.EnableMetrics {
		return nil
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelError)}))
	s := newServer("metrics", mux, log, h, tcp(c.OperatorPrometheusServeAddr))
	if c.OperatorPrometheusEnableTLS {
		s.tls = &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: c.freshTLS}
	}
	return s
}

// freshTLS reads certificates for every connection: scrapes are rare, and so a
// rotated file is never missed.
func (c Config) freshTLS(*tls.ClientHelloInfo) (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(c.OperatorPrometheusTLSCertFile, c.OperatorPrometheusTLSKeyFile)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate of the metrics server: %w", err)
	}
	fresh := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}}
	for _, file := range c.OperatorPrometheusTLSClientCAFiles {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading an authority of metrics clients: %w", err)
		}
		if fresh.ClientCAs == nil {
			fresh.ClientCAs, fresh.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		}
		if !fresh.ClientCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s has no certificate of an authority", file)
		}
	}
	return fresh, nil
}

// sample is a metric as /v1/metrics tells it.
type sample struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
	Value  float64           `json:"value,omitempty"`
}

// gather lists all metrics; of distributions it tells the sum.
func gather(g prometheus.Gatherer) ([]sample, error) {
	families, err := g.Gather()
	if err != nil {
		return nil, err
	}
	samples := []sample{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			s := sample{Name: f.GetName(), Value: valueOf(m)}
			for _, l := range m.GetLabel() {
				if s.Labels == nil {
					s.Labels = map[string]string{}
				}
				s.Labels[l.GetName()] = l.GetValue()
			}
			samples = append(samples, s)
		}
	}
	return samples, nil
}

func valueOf(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.GetCounter().GetValue()
	case m.Gauge != nil:
		return m.GetGauge().GetValue()
	case m.Histogram != nil:
		return m.GetHistogram().GetSampleSum()
	case m.Summary != nil:
		return m.GetSummary().GetSampleSum()
	}
	return m.GetUntyped().GetValue()
}
