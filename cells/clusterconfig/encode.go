// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterconfig

import (
	"encoding/json"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/kvstore"
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

	EndpointSlicesExportMode string `json:"endpointSlicesExportMode,omitempty"` // absent is none
}

// encode returns the value. haveSlices is whether the EndpointSlices of exported Services are in the kvstore.
func encode(shared cluster.Config, haveSlices bool) ([]byte, error) {
	d := document{shared.ClusterID, capabilities{MaxConnectedClusters: shared.MaxConnectedClusters, ServiceExportsEnabled: shared.ClusterMeshEnableMCSAPI}}
	switch {
	case haveSlices && shared.ExportsServices():
		d.Capabilities.EndpointSlicesExportMode = kvstore.ServicesAndSlices
	case haveSlices:
		d.Capabilities.EndpointSlicesExportMode = kvstore.SlicesAlone
	}
	return json.Marshal(d)
}
