// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustermesh

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/kvstore"
)

// clusterConfig is what a cluster publishes about itself.
type clusterConfig struct {
	ID           uint32       `json:"id"`
	Capabilities capabilities `json:"capabilities"`
}

type capabilities struct {
	SyncedCanaries        bool   `json:"syncedCanaries"`
	Cached                bool   `json:"cached"`
	MaxConnectedClusters  uint32 `json:"maxConnectedClusters"`
	ServiceExportsEnabled *bool  `json:"serviceExportsEnabled"`
	// EndpointSlicesExportMode says which keys have the backends of services; empty is those of services.
	EndpointSlicesExportMode string `json:"endpointSlicesExportMode"`
}

// knowsServiceExports reports whether the cluster writes the synced marker of service exports, whether or not it has any.
func (c capabilities) knowsServiceExports() bool { return c.ServiceExportsEnabled != nil }

// hasServices reports whether the cluster writes the keys of services.
func (c capabilities) hasServices() bool { return c.EndpointSlicesExportMode != kvstore.SlicesAlone }

// sameReading reports whether two configurations are read in the same way.
func (c clusterConfig) sameReading(other clusterConfig) bool {
	return c.ID == other.ID && c.Capabilities.SyncedCanaries == other.Capabilities.SyncedCanaries && c.Capabilities.Cached == other.Capabilities.Cached &&
		c.Capabilities.knowsServiceExports() == other.Capabilities.knowsServiceExports() && c.Capabilities.hasServices() == other.Capabilities.hasServices()
}

// parseClusterConfig decodes the configuration of a remote cluster, and checks it against our own.
func parseClusterConfig(value []byte, own cluster.Config) (clusterConfig, error) {
	var c clusterConfig
	if err := json.Unmarshal(value, &c); err != nil {
		return c, fmt.Errorf("its configuration is no JSON: %w", err)
	}
	switch {
	case own.ClusterID == 0:
		return c, errors.New("this cluster has no ID: set cluster-id")
	case c.ID == 0:
		return c, errors.New("it has no ID: set cluster-id there")
	case c.ID > own.MaxConnectedClusters:
		return c, fmt.Errorf("its ID %d is above the maximum of this cluster, %d: set max-connected-clusters", c.ID, own.MaxConnectedClusters)
	case c.ID == own.ClusterID:
		return c, fmt.Errorf("its ID %d is that of this cluster: IDs are unique in a mesh", c.ID)
	case own.MaxConnectedClusters == 511 && c.Capabilities.MaxConnectedClusters != 511:
		return c, fmt.Errorf("its max-connected-clusters is %d, that of this cluster is 511: they must be equal", max(c.Capabilities.MaxConnectedClusters, 255))
	}
	switch mode := c.Capabilities.EndpointSlicesExportMode; mode {
	case "", kvstore.ServicesAndSlices, kvstore.SlicesAlone:
		return c, nil
	default:
		return c, fmt.Errorf("its mode %.64q of exporting EndpointSlices is not known", mode)
	}
}
