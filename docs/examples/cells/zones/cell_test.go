// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package zones_test

import (
	"testing"

	"github.com/skep-operator/skep/docs/examples/cells/zones"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/runtime/cell/celltest"
)

// region check

func TestCell(t *testing.T) {
	celltest.Check(t, zones.Cell,
		celltest.InTerm("leader"),
		celltest.With(k8s.Cell, reconcile.Cell, stream.Cell),
		celltest.Args("--k8s-api-server=http://127.0.0.1:1"),
		celltest.OffArgs("--k8s-api-server=http://127.0.0.1:1", "--zone-label="))
}

// endregion
