// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mistakes

import (
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/hive/testdata/mistakes/kvstore"
)

var private = []Case{
	{Name: "private-type", Cells: cell.Set(
		cell.Module("kvstore", "Keeps it", cell.ProvidePrivate(kvstore.New), cell.Hook("dial", serveClient)),
		cell.Module("heartbeat", "Asks for it", cell.Hook("beat", serveClient)))},
	{Name: "private-type-of-a-nested-module", Cells: cell.Module("kvstore", "Is outside",
		cell.Module("inner", "Keeps it", cell.ProvidePrivate(kvstore.New), cell.Hook("dial", serveClient)),
		cell.Hook("beat", serveClient))},
	{Name: "unused-private-provider", Cells: cell.Module("kvstore", "Does not need it",
		cell.ProvidePrivate(kvstore.New), cell.Hook("dial", none))},
}
