// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package unmanaged

import (
	"testing"

	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell/celltest"
)

func TestCell(t *testing.T) {
	celltest.Check(t, Cell, celltest.With(operatortest.Resources...), celltest.InTerm("leader"),
		celltest.Args("--k8s-api-server=http://127.0.0.1:1"), celltest.OffArgs("--k8s-api-server=http://127.0.0.1:1", "--unmanaged-pod-watcher-interval=0"))
}
