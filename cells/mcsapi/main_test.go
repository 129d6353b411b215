// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mcsapi

import (
	"testing"

	"github.com/skep-operator/skep/resources/clustermesh"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell/celltest"
)

func TestMain(m *testing.M) { operatortest.Main(m) }

func TestCell(t *testing.T) {
	with := append(operatortest.Resources[:len(operatortest.Resources):len(operatortest.Resources)], kvstore.Cell, clustermesh.Cell)
	celltest.Check(t, Cell, celltest.InTerm("leader"), celltest.With(with...),
		celltest.Args("--k8s-api-server=http://127.0.0.1:1", "--clustermesh-enable-mcs-api", "--cluster-name=here", "--cluster-id=1",
			"--kvstore=etcd", "--kvstore-opt=etcd.address=http://127.0.0.1:1", "--clustermesh-config="+t.TempDir()),
		celltest.OffArgs("--k8s-api-server=http://127.0.0.1:1"))
}
