// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lbipam

import (
	"testing"

	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell/celltest"
)

func TestMain(m *testing.M) { operatortest.Main(m) }

// Number 45 of the contract's lb-ipam.md: switched off, it neither watches nor writes. Its kind is registered all the same (cells/crds).
func TestCell(t *testing.T) {
	celltest.Check(t, Cell, celltest.With(operatortest.Resources...), celltest.InTerm("leader"),
		celltest.Args("--k8s-api-server=http://127.0.0.1:1"), celltest.OffArgs("--k8s-api-server=http://127.0.0.1:1", "--enable-lb-ipam=false"))
}
