// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterconfig

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/kvstore/kvstoretest"
	"github.com/skep-operator/skep/runtime/cell/celltest"
)

func TestMain(m *testing.M) {
	os.Setenv(k8s.StrictCause, "1")
	goleak.VerifyTestMain(m)
}

// Nothing listens there: an etcd that is away keeps nothing from starting or
// stopping.
const nowhere = "http://127.0.0.1:1"

func TestCell(t *testing.T) {
	celltest.Check(t, Cell, celltest.InTerm("leader"),
		celltest.With(append(kvstoretest.Cells, kvstore.Cell)...),
		celltest.Args(kvstoretest.Args(nowhere, "--cluster-name=c1", "--cluster-id=1")...),
		celltest.OffArgs("--kvstore="))
}
