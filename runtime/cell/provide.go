// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cell

import (
	"reflect"

	"github.com/skep-operator/skep/runtime/internal/decl"
)

// Provide adds constructors. A constructor is a function whose parameters are
// what it needs and whose results are what it offers, with an optional error at
// the end; [In] and [Out] structs stand for several. It runs only when something
// that starts needs it, once in the process or once at each entry of its term,
// and again when its module is rebuilt after a panic. A constructor does no I/O
// and starts no goroutine; what it registers or reports goes away with what it
// made.
func Provide(constructors ...any) Cell { return provide(constructors, decl.Provide{}) }

// ProvidePrivate is like [Provide], for use inside the module only. One that
// nothing in the module asks for is an error.
func ProvidePrivate(constructors ...any) Cell {
	return provide(constructors, decl.Provide{Visibility: decl.Private})
}

// ProvidePerModule adds constructors whose values every module gets an own one of,
// such as its logger or its client. The first parameter is the [ModuleInfo] of the
// module that the value is for.
func ProvidePerModule(constructors ...any) Cell {
	return provide(constructors, decl.Provide{Visibility: decl.PerModule})
}

// ProvideProcess is like [Provide] for values that belong to the process even when
// declared in a term: built once, and the same at every entry. What they need
// must belong to the process, too.
func ProvideProcess(constructors ...any) Cell {
	return provide(constructors, decl.Provide{Lasting: true})
}

// Metrics adds a constructor that returns a pointer to a struct whose exported
// fields are Prometheus collectors. It takes nothing, or a metrics.Factory that
// has the namespace of the operator and the module's id as subsystem. The
// collectors are registered, listed by the metrics command, and last across
// terms; gauges of a term's module are reset when the term ends.
func Metrics(constructor any) Cell {
	return provide([]any{constructor}, decl.Provide{Lasting: true, Metrics: true})
}

// Made describes a function of a caller's module, made by a function that declares cells for that caller: messages
// have this name, and the line of the caller. It is passed to the cells of this package in place of the function.
func Made(name string, function any) any {
	return decl.Made{Fn: function, Name: name, Where: decl.Caller(1)}
}

// Suggest says how values of some types come into the graph, for messages about one that is missing: the function
// returns what to do, or nothing for types that it does not know. It is asked wherever it is declared, before those that
// are declared earlier.
func Suggest(fix func(missing reflect.Type) string) Cell {
	return declared{&decl.Suggest{Fn: fix}}
}

func provide(constructors []any, like decl.Provide) Cell {
	group := &decl.Group{}
	for _, c := range constructors {
		p := like
		p.Fn = decl.FuncOf(c, decl.Caller(1))
		group.Cells = append(group.Cells, &p)
	}
	return declared{group}
}

// Decorate replaces a value for its module and those nested in it; at the top
// of a list, for all. The function takes the value, and whatever else it needs,
// and returns one of the same type. Decorators of one value apply in
// declaration order, those of outer modules first. A value that every module has
// its own of is decorated for each; a value of a term is decorated inside the
// term (see [Cells.WithInTerm]). Groups cannot be decorated.
func Decorate(decorator any) Cell {
	return declared{&decl.Decorate{Fn: decl.FuncOf(decorator, decl.Caller(0))}}
}
