// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package prometheus serves metrics to Prometheus, and registers those of the process, the log and health.
package prometheus

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/skep-operator/skep/cells/health/internal/httpserver"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/lifecycle"
	"github.com/skep-operator/skep/runtime/logging"
	"github.com/skep-operator/skep/runtime/metrics"
)

// Config is the options of the metrics server.
type Config struct {
	EnableMetrics                      bool     `flag:"enable-metrics" usage:"Serve Prometheus metrics"`
	OperatorPrometheusServeAddr        string   `flag:"operator-prometheus-serve-addr" usage:"Address of the metrics server"`
	OperatorPrometheusEnableTLS        bool     `flag:"operator-prometheus-enable-tls" usage:"Serve metrics over TLS"`
	OperatorPrometheusTLSCertFile      string   `flag:"operator-prometheus-tls-cert-file" usage:"Certificate file of the metrics server; reloaded when it changes"`
	OperatorPrometheusTLSKeyFile       string   `flag:"operator-prometheus-tls-key-file" usage:"Private key file of the metrics server; reloaded when it changes"`
	OperatorPrometheusTLSClientCAFiles []string `flag:"operator-prometheus-tls-client-ca-files" usage:"CA files for client certificates of the metrics server; if empty, no client certificate is required"`
}

// Validate implements the check of config structs.
func (c Config) Validate() error {
	if _, _, err := net.SplitHostPort(c.OperatorPrometheusServeAddr); c.OperatorPrometheusServeAddr != "" && err != nil {
		return cell.Invalid("operator-prometheus-serve-addr", "must be host:port: %v", err)
	}
	if c.OperatorPrometheusEnableTLS && (c.OperatorPrometheusTLSCertFile == "" || c.OperatorPrometheusTLSKeyFile == "") {
		return cell.Invalid("operator-prometheus-enable-tls", "needs --operator-prometheus-tls-cert-file and --operator-prometheus-tls-key-file")
	}
	return nil
}

// NewServer returns the metrics server, nil if metrics are disabled.
func NewServer(c Config, m *Metrics, registry *metrics.Registry, log *slog.Logger, h health.Reporter) lifecycle.Hook {
	if !c.EnableMetrics {
		return nil
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelError)}))
	s := httpserver.New("metrics", httpserver.Common, mux, log, h, httpserver.TCP(c.OperatorPrometheusServeAddr))
	if c.OperatorPrometheusEnableTLS {
		files := &certificates{config: c, metrics: m, health: s.Health.Child("tls")}
		s.OnStart = func() { _, _ = files.read(nil) } // reported to health
		s.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: files.read}
	}
	return s
}

// certificates are those of the metrics server. They are read for every connection: scrapes are rare, and changed files are
// used at once.
type certificates struct {
	config  Config
	metrics *Metrics
	health  health.Reporter
}

// read returns the TLS configuration of the files. Unusable files are reported to health.
func (c *certificates) read(*tls.ClientHelloInfo) (*tls.Config, error) {
	config, err := c.config.serverTLS()
	c.metrics.CertificateReads.Inc()
	if err != nil {
		c.metrics.CertificateErrors.Inc()
		c.health.Degraded("metrics cannot be read", err)
		return nil, err
	}
	c.health.OK("")
	return config, nil
}

func (c Config) serverTLS() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(c.OperatorPrometheusTLSCertFile, c.OperatorPrometheusTLSKeyFile)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate of the metrics server: %w", err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}}
	for _, file := range c.OperatorPrometheusTLSClientCAFiles {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading a CA file of metrics clients: %w", err)
		}
		if config.ClientCAs == nil {
			config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		}
		if !config.ClientCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s has no CA certificate", file)
		}
	}
	return config, nil
}

// Metrics are those of the log, and of the certificates of the metrics server, under the names that other operators have for them.
type Metrics struct {
	Problems          *prometheus.CounterVec
	CertificateReads  prometheus.Counter
	CertificateErrors prometheus.Counter

	namespace string
}

// NewMetrics returns the metrics.
func NewMetrics(f metrics.Factory) *Metrics {
	certwatcher := metrics.Factory{Namespace: "certwatcher"}
	return &Metrics{
		Problems:          f.In("").CounterVec("errors_warnings_total", "Warnings and errors in the log", "level", "subsystem"),
		CertificateReads:  certwatcher.Counter("read_certificate_total", "How often the certificate of the metrics server was read: at the start, and for each connection"),
		CertificateErrors: certwatcher.Counter("read_certificate_errors_total", "How often the certificate of the metrics server could not be used when it was read"),
		namespace:         f.Namespace,
	}
}

// RegisterStandard registers the collectors that the original always has.
func RegisterStandard(m *Metrics, log *logging.Log, r prometheus.Registerer, tree *health.Tree) error {
	log.CountProblems(func(level, subsys string) { m.Problems.WithLabelValues(level, subsys).Inc() })
	for _, c := range []prometheus.Collector{
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{Namespace: m.namespace}),
		collectors.NewGoCollector(),
		statusCollector{tree},
	} {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// statusCollector counts health reports by level, without unused levels.
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
