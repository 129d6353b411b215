// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodegc

import (
	"testing"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/sweep"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/cell/celltest"
)

// around are the cells that this one asks things of.
var around = []cell.Cell{
	cluster.Cell(cluster.DefaultConfig), explain.Cell, k8s.Cell, stream.Cell, ciliumio.Cell, sweep.Cell,
}

func TestCell(t *testing.T) {
	celltest.Check(t, Cell, celltest.With(around...), celltest.InTerm("leader"),
		celltest.Args("--k8s-api-server=http://127.0.0.1:1"), celltest.OffArgs("--k8s-api-server=http://127.0.0.1:1", "--nodes-gc-interval=0"))
}
