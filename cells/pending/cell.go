// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package pending

import "github.com/skep-operator/skep/runtime/cell"

// Cell accepts the options of duties that are not implemented yet.
var Cell = cell.Module("pending", "Accepts the options of duties that are not built yet, and names those that are asked for",
	cell.IgnoredFlags(declare),
	duties,
	cell.Validate(checkTypes),
	cell.Provide(newSection),
	cell.Invoke(reportRemoved),
)
