// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package cluster names the cluster.
package cluster

import (
	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/cell"
)

// Config is what all cells know of the cluster.
type Config struct {
	ClusterName string
	ClusterID   int
}

// Flags implements cell.Flagger.
func (c Config) Flags(fs *pflag.FlagSet) {
	fs.String("cluster-name", c.ClusterName, "Name of the cluster")
	fs.Int("cluster-id", c.ClusterID, "Unique identifier of the cluster")
}

// Cell is the module.
var Cell = cell.Module("cluster", "Names the cluster for all cells", cell.Config(Config{ClusterName: "default"}))
