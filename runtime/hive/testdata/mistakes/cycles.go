// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mistakes

import (
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

type (
	hen     struct{}
	egg     struct{}
	chicken struct{}
	snake   struct{}
)

func newHen(*chicken) *hen             { return nil }
func newChicken(*egg) *chicken         { return nil }
func newEgg(*hen) *egg                 { return nil }
func newSnake(*snake) *snake           { return nil }
func serveHen(*hen) lifecycle.Hook     { return none() }
func serveSnake(*snake) lifecycle.Hook { return none() }

var cycles = []Case{
	{Name: "cycle", Cells: cell.Set(
		cell.Module("hen", "Comes from a chicken", cell.Provide(newHen, newChicken), cell.Hook("lay", serveHen)),
		cell.Module("egg", "Comes from a hen", cell.Provide(newEgg)))},
	{Name: "two-cycles", Cells: cell.Set(
		cell.Module("hen", "Comes from a chicken", cell.Provide(newHen, newChicken, newEgg), cell.Hook("lay", serveHen)),
		cell.Module("snake", "Bites its tail", cell.Provide(newSnake), cell.Hook("bite", serveSnake)))},
}
