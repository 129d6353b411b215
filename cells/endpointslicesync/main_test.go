// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslicesync

import (
	"testing"

	"github.com/skep-operator/skep/resources/clustermesh"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell/celltest"
)

func TestMain(m *testing.M) { operatortest.Main(m) }

func TestCell(t *testing.T) {
	celltest.Check(t, Cell, celltest.InTerm("leader"), celltest.With(append(operatortest.Resources[:len(operatortest.Resources):len(operatortest.Resources)], clustermesh.Cell)...),
		celltest.Args("--k8s-api-server=http://127.0.0.1:1", "--clustermesh-enable-endpoint-sync", "--clustermesh-config="+t.TempDir(), "--cluster-name=here", "--cluster-id=1"),
		celltest.OffArgs("--k8s-api-server=http://127.0.0.1:1"))
}
