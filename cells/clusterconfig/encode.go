// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterconfig

import (
	"encoding/json"

	"github.com/skep-operator/skep/resources/cluster"
)

// document is the value of the key. Readers ignore unknown fields.
type document struct {
	ID           uint32       `json:"id,omitempty"`
	Capabilities capabilities `json:"capabilities"`
}

// capabilities lacks the fields that only mirrors write.
type capabilities struct {
	MaxConnectedClusters  uint32 `json:"maxConnectedClusters,omitempty"`
	ServiceExportsEnabled bool   `json:"serviceExportsEnabled"` // absent is unknown
}

func encode(shared cluster.Config) ([]byte, error) {
	return json.Marshal(document{shared.ClusterID, capabilities{shared.MaxConnectedClusters, shared.ClusterMeshEnableMCSAPI}})
}
