// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cell

import (
	"github.com/skep-operator/skep/runtime/internal/decl"
)

// Cell is one declaration or a list of them. Only this package makes cells.
type Cell interface {
	declaration
}

// declaration seals Cell and lets the runtime read it.
type declaration interface{ Declaration() decl.Node }

type declared struct{ node decl.Node }

func (d declared) Declaration() decl.Node { return d.node }

func nodes(cells []Cell) []decl.Node {
	out := make([]decl.Node, 0, len(cells))
	for _, c := range cells {
		if c == nil {
			out = append(out, &decl.Broken{Problem: "a nil cell stands in the list", Fix: "remove it", Where: decl.Caller(1)})
			continue
		}
		out = append(out, c.Declaration())
	}
	return out
}

// In marks a struct whose fields are a constructor's parameters. Tags of a
// field: name:"x" asks for the value of that name, group:"x" (on a slice) for
// all values of that group in declaration order, optional:"true" for the zero
// value where no enabled module provides one. A provider that is there but
// fails is an error for optional fields, too.
type In struct{}

// Out marks a struct whose fields are a constructor's results. Tags of a
// field: name:"x" and group:"x".
type Out struct{}

// ModuleInfo is the module that a per-module value is made for.
type ModuleInfo struct {
	ID    string // ipam.clusterpool
	Title string // one sentence
	Term  string // the term it lives in, "" in the process
}

// BuildInfo is the program that the cells are part of.
type BuildInfo struct {
	Name    string // as given to hive.New
	Version string
}
