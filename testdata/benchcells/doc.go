// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package benchcells is a thousand modules for measuring how fast a graph is
// built: each has a config struct with two flags, a constructor that takes it
// and the service of the module before, and a hook: two constructors a module,
// as frameworks count in which the config struct is one. They are plain
// functions, so that other frameworks can be given the same.
package benchcells

//go:generate go run gen.go

import (
	"context"

	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/cell"
)

// Unit is one module's worth of declarations.
type Unit struct {
	Name  string
	Flags func(*pflag.FlagSet)
	// ConfigOf makes a constructor of the config struct out of a function that
	// fills one.
	ConfigOf func(fill func(any) error) any
	// NewServer takes the config and the server of the unit before.
	NewServer any
	// Demand takes the server.
	Demand any
	// Module is the same as a cell.
	Module cell.Cell
}

// Units returns the first n units, at most a thousand.
func Units(n int) []Unit { return units()[:n] }

// Set is the first n units as a list of cells.
func Set(n int) cell.Cells {
	var cells []cell.Cell
	for _, u := range Units(n) {
		cells = append(cells, u.Module)
	}
	return cell.Set(cells...)
}

type hook struct{}

func (hook) Start(context.Context) error { return nil }
func (hook) Stop(context.Context) error  { return nil }
