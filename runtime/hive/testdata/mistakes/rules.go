// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mistakes

import (
	"github.com/skep-operator/skep/runtime/cell"
)

var (
	undeclared = cell.When("the interval is long", []string{"sync-interval"}, func(i interval) bool { return i.SyncInterval > 1 })
	panics     = cell.When("the limits are fine", []string{"low"}, func(limits) bool { var m map[string]int; m["x"] = 1; return true })
	noBool     = cell.When("the limits are odd", nil, func(limits) int { return 1 })
)

func ruleOverUndeclared(interval) error { return nil }
func ruleWithoutError(limits) bool      { return true }
func ruleThatPanics(limits) error       { panic("whoops") }

var rules = []Case{
	{Name: "condition-over-undeclared-config", Cells: cell.Module("m", "Is perhaps on", cell.EnabledBy(undeclared))},
	{Name: "condition-that-panics", Cells: cell.Module("m", "Is perhaps on", cell.Config(limits{}), cell.EnabledBy(panics))},
	{Name: "unusable-rules", Cells: cell.Module("m", "Is perhaps on", cell.Config(limits{}),
		cell.EnabledBy(noBool), cell.Validate(ruleWithoutError), cell.Validate(nil), cell.EnabledBy(cell.When("nothing", nil, nil)))},
	{Name: "rule-over-undeclared-config", Cells: cell.Module("m", "Has a rule", cell.Validate(ruleOverUndeclared))},
	{Name: "rule-that-panics", Cells: cell.Module("m", "Has a rule", cell.Config(limits{}), cell.Validate(ruleThatPanics))},
}
