// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

import (
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell serves health, metrics and debugging.
var Cell = cell.Module("health", "Tells how the operator fares, over HTTP and a local socket",
	cell.Config(defaults),
	cell.Metrics(newMetrics),
	cell.ProvidePrivate(newReport, newCheck),

	cell.Hook("api", newAPI),
	cell.Hook("metrics", newMetricsServer),
	cell.Hook("pprof", newPprof),
	cell.Hook("gops", newGops),
	cell.Hook("socket", newSocket),
	cell.Job("drift", newDrift),
	cell.Invoke(registerStandard),

	cell.Annotate(statusCommand),
)
