// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterpool

import (
	"testing"

	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell/celltest"
)

func TestCell(t *testing.T) {
	on := []string{"--k8s-api-server=http://127.0.0.1:1", "--enable-ipv6=false", "--cluster-pool-ipv4-cidr=10.0.0.0/8"}
	celltest.Check(t, Cell, celltest.With(operatortest.Resources...), celltest.InTerm("leader"),
		celltest.Args(on...), celltest.OffArgs("--k8s-api-server=http://127.0.0.1:1", "--ipam=kubernetes"))
}
