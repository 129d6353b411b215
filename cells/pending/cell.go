// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package pending

import "github.com/skep-operator/skep/runtime/cell"

// Cell accepts the options of duties that are not built yet.
var Cell = cell.Module("pending", "Accepts the options of duties that are not built yet, and names them once",
	cell.Accept(declare),
	cell.Invoke(report),
)
