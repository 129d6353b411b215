// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mistakes

import "github.com/skep-operator/skep/runtime/cell"

var list = cell.Set(entering,
	cell.Module("kvstore", "Is in the list"),
	cell.Term("leader",
		cell.Module("ipam", "Has parts", cell.Module("clusterpool", "Is a part")),
		cell.Module("heartbeat", "Beats")))

var edits = []Case{
	{Name: "without-unknown", Cells: list.Without("ipam.clusterpol")},
	{Name: "without-unknown-and-nothing-near", Cells: list.Without("something-else")},
	{Name: "replace-unknown", Cells: list.Replace("hartbeat", cell.Module("mine", "Beats better"))},
	{Name: "replace-with-no-module", Cells: list.Replace("ipam.clusterpool", cell.Provide(newHeart))},
	{Name: "replace-with-nothing", Cells: list.Replace("heartbeat", nil)},
	{Name: "with-unknown-term", Cells: list.WithInTerm("laeder", cell.Module("mine", "Beats better"))},
	{Name: "nil-cell", Cells: cell.Set(entering, cell.Term("leader"), nil)},
	{Name: "bad-module-id", Cells: cell.Set(cell.Module("Heart Beat", "Has a name that is no id"), cell.Module("", "Has none"))},
}
