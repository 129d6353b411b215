// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mistakes

import (
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/hive/testdata/mistakes/kvstore"
)

var orders = []Case{
	{Name: "after-unknown-module", Cells: cell.Set(
		cell.Module("kvstore", "Is there", cell.Hook("dial", none)),
		cell.Module("heartbeat", "Comes after", cell.Hook("beat", none), cell.StartAfter("kvstor", "it writes there")))},
	{Name: "start-order-cycle", Cells: cell.Set(
		cell.Module("kvstore", "Serves the client", cell.Provide(kvstore.New), cell.Hook("dial", serveClient),
			cell.StartAfter("heartbeat", "somebody thought so")),
		cell.Module("heartbeat", "Uses the client", cell.Hook("beat", serveClient)),
		cell.Module("late", "Is not to blame", cell.Hook("wait", none), cell.StartAfter("heartbeat", "it reads what was written")))},
	{Name: "start-order-cycle-of-edges", Cells: cell.Set(
		cell.Module("a", "Comes after b", cell.Hook("a", none), cell.StartAfter("b", "a reason")),
		cell.Module("b", "Comes after a", cell.Hook("b", none), cell.StartAfter("a", "")))},
}
