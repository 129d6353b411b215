// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package graph

import (
	"io"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/testdata/benchcells"
)

// ours does as the commands do: a flag set, parsed, then all phases up to the
// start.
func ours(units []benchcells.Unit) error {
	cells := make([]cell.Cell, len(units))
	for i, u := range units {
		cells[i] = u.Module
	}
	h := hive.New("bench", cell.Set(cells...), hive.LogTo(io.Discard), hive.EnvPrefix(envPrefix+"_"))
	flags := h.FlagSet()
	if err := flags.Parse(nil); err != nil {
		return err
	}
	if err := h.Configure(flags); err != nil {
		return err
	}
	return h.Build()
}
