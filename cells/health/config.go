// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

import (
	"cmp"

	"github.com/skep-operator/skep/cells/health/internal/api"
	"github.com/skep-operator/skep/cells/health/internal/debug"
	"github.com/skep-operator/skep/cells/health/internal/prometheus"
	"github.com/skep-operator/skep/cells/health/internal/status"
)

type (
	apiConfig        = api.Config
	prometheusConfig = prometheus.Config
	pprofConfig      = debug.PprofConfig
	gopsConfig       = debug.GopsConfig
	socketConfig     = status.Config
)

// Config is the options of all servers.
type Config struct {
	apiConfig
	prometheusConfig
	pprofConfig
	gopsConfig
	socketConfig
}

var defaults = Config{
	apiConfig{OperatorAPIServeAddr: api.DefaultAddress, EnableCiliumOperatorServerAccess: []string{"*"}},
	prometheusConfig{OperatorPrometheusServeAddr: ":9963"},
	pprofConfig{OperatorPprofAddress: "localhost", OperatorPprofPort: 6061},
	gopsConfig{EnableGops: true, GopsPort: 9891},
	socketConfig{OperatorSockPath: "/var/run/cilium/operator.sock"},
}

// Validate implements the check of config structs.
func (c Config) Validate() error {
	return cmp.Or(c.apiConfig.Validate(), c.prometheusConfig.Validate())
}

// Each server takes its own options: one that shared a value with another would wait for it.

func (c Config) api() api.Config                    { return c.apiConfig }
func (c Config) metricsEnabled() api.MetricsEnabled { return api.MetricsEnabled(c.EnableMetrics) }
func (c Config) prometheus() prometheus.Config      { return c.prometheusConfig }
func (c Config) pprof() debug.PprofConfig           { return c.pprofConfig }
func (c Config) gops() debug.GopsConfig             { return c.gopsConfig }
func (c Config) socket() status.Config              { return c.socketConfig }
