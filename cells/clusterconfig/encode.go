// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterconfig

import (
	"encoding/json"

	"github.com/skep-operator/skep/resources/cluster"
)

// document is the value of the key. Readers ignore fields that they do not know.
type document struct {
	ID           uint32       `json:"id,omitempty"`
	Capabilities capabilities `json:"capabilities"`
}

// capabilities has no field for what only mirrors of clusters are capable of.
type capabilities struct {
	MaxConnectedClusters  uint32 `json:"maxConnectedClusters,omitempty"`
	ServiceExportsEnabled bool   `json:"serviceExportsEnabled"` // absent means that it is not known
}

func encode(shared cluster.Config, c Config) ([]byte, error) {
	return json.Marshal(document{shared.ClusterID, capabilities{shared.MaxConnectedClusters, c.ClusterMeshEnableMCSAPI}})
}
