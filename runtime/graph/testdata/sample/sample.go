// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package sample is a small operator that has every feature a graph can show.
// The renderers are tested with it. Its cells do nothing when run.
package sample

import (
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/cluster"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/crds"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/election"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/identity"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/ipam"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/k8s"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/kvstore"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/lbipam"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/nodesync"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/status"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/stream"
)

// Cells is the operator, with one of its cells replaced as an embedder would.
var Cells = cell.Set(
	cluster.Cell, k8s.Cell, stream.Cell, kvstore.Cell, status.Cell, election.Cell,
	cell.Term("leader", crds.Cell, identity.Cell, ipam.Cell, nodesync.Cell, lbipam.Cell, kvstore.Heartbeat),
).Replace("lbipam", lbipam.Acme)
