// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"testing"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/runtime/cell/celltest"
)

// Nothing listens there: an unreachable etcd must not prevent starting or stopping.
const nowhere = "127.0.0.1:1"

func TestCell(t *testing.T) {
	celltest.Check(t, Cell, celltest.InTerm("leader"),
		celltest.With(cluster.Cell(cluster.DefaultConfig), k8s.Cell, reconcile.Cell),
		celltest.Args("--kvstore=etcd", "--kvstore-opt=etcd.address="+nowhere, "--k8s-api-server=http://"+nowhere),
		celltest.OffArgs("--kvstore="))
}
