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

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/lifecycle"
	"github.com/skep-operator/skep/runtime/metrics"
)

// newMetricsServer serves metrics to Prometheus.
func newMetricsServer(c Config, registry *metrics.Registry, log *slog.Logger, h health.Reporter) lifecycle.Hook {
	if !c.EnableMetrics {
		return nil
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelError)}))
	s := newServer("metrics", mux, log, h, tcp(c.OperatorPrometheusServeAddr))
	if c.OperatorPrometheusEnableTLS {
		files := &certificates{config: c, health: s.health.Part("tls")}
		s.onStart = func() { _, _ = files.read(nil) } // health has what is wrong
		s.tls = &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: files.read}
	}
	return s
}

// certificates are those of the metrics server. They are read for every
// connection: scrapes are rare, and so a file that changed is never missed.
type certificates struct {
	config Config
	health health.Reporter
}

// read is the state of the files as a TLS configuration. Health tells of files
// that cannot be used.
func (c *certificates) read(*tls.ClientHelloInfo) (*tls.Config, error) {
	config, err := c.config.serverTLS()
	if err != nil {
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
			return nil, fmt.Errorf("reading an authority of metrics clients: %w", err)
		}
		if config.ClientCAs == nil {
			config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		}
		if !config.ClientCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s has no certificate of an authority", file)
		}
	}
	return config, nil
}
