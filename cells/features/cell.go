// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package features

import (
	"context"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// Cell reports enabled features.
var Cell = cell.Module("features", "Reports to Prometheus which features are enabled",
	cell.Metrics(newMetrics),
	cell.Hook("report", newReport),
	cell.Job("kubernetes", newVersionJob),
)

func newReport(m *featureMetrics, source graph.Source) lifecycle.Hook {
	return lifecycle.Funcs{OnStart: func(context.Context) error {
		m.set(source())
		return nil
	}}
}
