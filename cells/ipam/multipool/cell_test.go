// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package multipool

import (
	"testing"

	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/cell/celltest"
)

const unreachable = "--k8s-api-server=http://127.0.0.1:1"

func TestCell(t *testing.T) {
	celltest.Check(t, Cell, celltest.With(operatortest.Resources...), celltest.InTerm("leader"),
		celltest.Args(unreachable, ours), celltest.OffArgs(unreachable, "--ipam=kubernetes"))
}

// spy is the cell with another check of its configuration.
func spy(t *testing.T, check func(Config) error) cell.Cell {
	t.Helper()
	return cell.Module("spy", "Reads the options", cell.Config(Config{}), cell.Validate(check))
}
