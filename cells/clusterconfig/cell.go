// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterconfig

import (
	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell keeps the cluster's configuration in the key-value store.
var Cell = cell.Module("clusterconfig", "Tells other clusters the number of this one and what it is capable of",
	cell.Config(Config{}),
	cell.EnabledBy(kvstore.InUse),
	cell.EnabledBy(cell.When("the cluster has a name and a number", []string{"cluster-name", "cluster-id"}, inMesh)),

	cell.ProvidePrivate(newPublisher),
	cell.Job("publish", (*publisher).publish),
	cell.Job("watch", (*publisher).watch),
)

// Config is what the cluster is capable of.
type Config struct {
	ClusterMeshEnableMCSAPI bool `flag:"clustermesh-enable-mcs-api"`
}

// Flags implements cell.Flagger.
func (c Config) Flags(fs *pflag.FlagSet) {
	fs.Bool("clustermesh-enable-mcs-api", c.ClusterMeshEnableMCSAPI, "Serve the multi-cluster services API")
}

// inMesh reports whether others can tell the cluster apart.
func inMesh(c cluster.Config) bool {
	return c.ClusterName != cluster.DefaultConfig.ClusterName && c.ClusterID != 0
}
