// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package orphans_test

import (
	"testing"

	"github.com/skep-operator/skep/docs/examples/cells/orphans"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/sweep"
	"github.com/skep-operator/skep/runtime/cell/celltest"
)

func TestCell(t *testing.T) {
	celltest.Check(t, orphans.Cell,
		celltest.InTerm("leader"),
		celltest.With(explain.Cell, k8s.Cell, stream.Cell, ciliumio.Cell, sweep.Cell),
		celltest.Args("--k8s-api-server=http://127.0.0.1:1"),
		celltest.OffArgs("--k8s-api-server=http://127.0.0.1:1", "--orphans-interval=0"))
}
