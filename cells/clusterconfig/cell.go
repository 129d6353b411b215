// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterconfig

import (
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell publishes the cluster's configuration in the kvstore.
var Cell = module(minWriteInterval)

func module(t timing) cell.Cell {
	return cell.Module("clusterconfig", "Publishes the ID and the capabilities of this cluster to others",
		cell.EnabledBy(kvstore.InUse),
		cell.EnabledBy(cell.When("the cluster has a name and a number", []string{"cluster-name", "cluster-id"}, inMesh)),

		cell.ProvidePrivate(func() timing { return t }, newController),
		cell.Job("publish", (*controller).publish),
		cell.Job("watch", (*controller).watch),
		cell.Job("watch-slices", (*controller).watchMarker),
	)
}

// inMesh reports whether the cluster has a name and a number of its own.
func inMesh(c cluster.Config) bool {
	return c.ClusterName != cluster.DefaultConfig.ClusterName && c.ClusterID != 0
}
