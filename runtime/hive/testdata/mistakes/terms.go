// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mistakes

import (
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/hive/testdata/mistakes/kvstore"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

func newLastingHeart(*kvstore.Client) *heart           { return nil }
func serveHeart(*heart) lifecycle.Hook                 { return none() }
func decorateClient(c *kvstore.Client) *kvstore.Client { return c }

type standby struct {
	cell.In
	Term lifecycle.Term `name:"standby"`
}

func enterStandby(s standby) lifecycle.Hook {
	return lifecycle.Funcs{OnStart: s.Term.Enter, OnStop: s.Term.Leave}
}

var (
	ofTerm   = cell.Module("kvstore", "Lives in the term", cell.Provide(kvstore.New), cell.Hook("dial", serveClient))
	standing = cell.Module("standby", "Enters the other term", cell.Hook("enter", enterStandby))
)

var terms = []Case{
	{Name: "term-value-in-the-process", Cells: cell.Set(entering, cell.Term("leader", ofTerm),
		cell.Module("heartbeat", "Lives in the process", cell.Hook("beat", serveClient)))},
	{Name: "term-value-in-a-lasting-one", Cells: cell.Set(entering, cell.Term("leader", ofTerm,
		cell.Module("heartbeat", "Has a lasting value", cell.ProvideProcess(newLastingHeart), cell.Hook("beat", serveHeart))))},
	{Name: "term-value-decorated-outside", Cells: cell.Set(entering, cell.Term("leader", ofTerm), cell.Decorate(decorateClient))},
	{Name: "value-of-another-term", Cells: cell.Set(entering, standing, cell.Term("leader", ofTerm),
		cell.Term("standby", cell.Module("heartbeat", "Lives in another term", cell.Hook("beat", serveClient))))},
	{Name: "unentered-term", Cells: cell.Term("leader", ofTerm)},
	{Name: "term-in-a-module", Cells: cell.Set(entering, cell.Term("leader"),
		cell.Module("outer", "Has a term inside", cell.Term("leader", ofTerm)))},
	{Name: "term-in-a-term", Cells: cell.Set(entering, standing, cell.Term("leader", cell.Term("standby", ofTerm)), cell.Term("standby"))},
	{Name: "handle-inside-a-term", Cells: cell.Set(standing, cell.Term("leader", entering), cell.Term("standby"))},
	{Name: "handle-without-name", Cells: cell.Set(entering, cell.Term("leader"),
		cell.Module("other", "Asks for any term", cell.Hook("enter", func(lifecycle.Term) lifecycle.Hook { return none() })))},
	{Name: "unentered-term-although-asked-for", Cells: cell.Set(cell.Term("leader", ofTerm),
		cell.Module("elect", "Would enter if anybody used it", cell.Provide(func(Leader) *heart { return nil })))},
}
