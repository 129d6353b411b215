// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package validation

import (
	"testing"

	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/spire"
	"github.com/skep-operator/skep/runtime/cell/celltest"
)

func TestMain(m *testing.M) { operatortest.Main(m) }

func TestCell(t *testing.T) {
	celltest.Check(t, Cell, celltest.With(append(operatortest.Resources, spire.Cell)...), celltest.InTerm("leader"),
		celltest.Args("--k8s-api-server=http://127.0.0.1:1"), celltest.OffArgs("--k8s-api-server=http://127.0.0.1:1", "--validate-network-policy=false"))
}
