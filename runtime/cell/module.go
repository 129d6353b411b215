// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cell

import "github.com/skep-operator/skep/runtime/internal/decl"

// Module is a named group of cells: a duty or a resource. The id is its path
// below the folder of cells with dots (ipam.clusterpool), made of lower-case
// letters, digits, dashes and dots; a module inside a module gets the outer id
// and a dot in front. Ids are public: log field, metric label, health path and
// what embedders name to replace or remove it. The title is one sentence that
// says what the module does for the cluster.
func Module(id, title string, cells ...Cell) Cell {
	return declared{&decl.Module{ID: id, Title: title, Cells: nodes(cells), Where: decl.Caller(0)}}
}

// MadeModule is [Module] for a function that declares a module for its caller: messages have the line of the caller.
func MadeModule(id, title string, cells ...Cell) Cell {
	return declared{&decl.Module{ID: id, Title: title, Cells: nodes(cells), Where: decl.Caller(1)}}
}

// Broken is a mistake in what a function that declares cells was given: what is wrong and what to do, reported when the
// graph is resolved, with the line of the function's caller. [Check] is for what is cheaper not to ask of modules that are
// off.
func Broken(problem, fix string) Cell {
	return declared{&decl.Broken{Problem: problem, Fix: fix, Where: decl.Caller(1)}}
}

// Term groups cells that live only between entering and leaving it, for
// example while leading. They are built afresh at every entry; of what they
// made only [ProvideProcess] and [Metrics] values survive. One process cell asks for
// the term's handle, a lifecycle.Term of the same name, and enters and leaves
// it as often as it likes. A process cell cannot ask for a value of a term.
func Term(name string, cells ...Cell) Cell {
	return declared{&decl.Term{Name: name, Cells: nodes(cells), Where: decl.Caller(0)}}
}

// NotBuilt names a duty that this operator does not have yet: the id that its module will have, what it will do, and
// when a configuration asks for it. One that is asked for is named in a warning at the start and of the validate
// command, and by the commands cells, why and status. A module of that id in the list takes its place.
func NotBuilt(id, title string, asked Condition) Cell {
	return declared{&decl.NotBuilt{ID: id, Title: title, Asked: asked.condition}}
}

// Annotate attaches a value to the module. Its type says whose it is: RBAC
// rules, commands and owners travel this way, and the runtime reads none of
// them.
func Annotate(value any) Cell {
	return declared{&decl.Annotation{Value: value}}
}
