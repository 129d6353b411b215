// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

import (
	"github.com/skep-operator/skep/cells/health/internal/api"
	"github.com/skep-operator/skep/cells/health/internal/configdrift"
	"github.com/skep-operator/skep/cells/health/internal/debug"
	"github.com/skep-operator/skep/cells/health/internal/prometheus"
	"github.com/skep-operator/skep/cells/health/internal/status"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell serves health, metrics and debugging.
var Cell = cell.Module("health", "Tells how the operator fares, over HTTP and a local socket",
	cell.Config(defaults),
	cell.Metrics(prometheus.NewMetrics),
	cell.ProvidePrivate(Config.api, Config.metricsEnabled, Config.prometheus, Config.pprof, Config.gops, Config.socket, status.New, api.NewCheck),
	cell.Provide(api.NewPage),

	cell.Hook("api", api.New),
	cell.Hook("metrics", prometheus.NewServer),
	cell.Hook("pprof", debug.NewPprof),
	cell.Hook("gops", debug.NewGops),
	cell.Hook("socket", status.NewSocket),
	cell.Job("drift", configdrift.NewJob),
	cell.Invoke(prometheus.RegisterStandard),

	cell.Annotate(status.Command),
	cell.Annotate(api.MetricsCommand),
	cell.Annotate(api.ClusterCommand),
	cell.Annotate(status.DumpInShell),
	cell.Annotate(status.HealthInShell),
	cell.Annotate(api.MetricsInShell),
)
