// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package mistakes is lists of cells that are wrong, one for each kind of
// mistake. They stand in files of their own so that the lines that errors name
// stay where they are.
package mistakes

import (
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// Case is a list of cells and what is wrong with it.
type Case struct {
	Name  string // of the golden file
	Cells cell.Cell
	Args  []string
}

// Cases are all mistakes.
func Cases() []Case {
	var all []Case
	for _, some := range [][]Case{missing, private, terms, duplicates, cycles, constructors, edits, functions, orders, configs, rules, embedding} {
		all = append(all, some...)
	}
	return all
}

// Leader is the handle of the term that most lists have.
type Leader struct {
	cell.In
	Term lifecycle.Term `name:"leader"`
}

// entering enters the term.
var entering = cell.Module("leader", "Enters the term", cell.Hook("elect", elect))

func elect(l Leader) lifecycle.Hook {
	return lifecycle.Funcs{OnStart: l.Term.Enter, OnStop: l.Term.Leave}
}

// none is a hook that does nothing.
func none() lifecycle.Hook { return lifecycle.Funcs{} }
