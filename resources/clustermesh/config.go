// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustermesh

import (
	"time"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/runtime/cell"
)

// Config says which clusters are read, and for what.
type Config struct {
	ClusterMeshConfig             string        `flag:"clustermesh-config" usage:"Directory with an etcd client configuration for each remote cluster; empty for none"`
	ClusterMeshSyncTimeout        time.Duration `flag:"clustermesh-sync-timeout" usage:"How long the services of a remote cluster may take to be read until that is reported" min:"1ms"`
	ClusterMeshCacheTTL           time.Duration `flag:"clustermesh-cache-ttl" usage:"How long the services of a remote cluster are kept while its etcd is unreachable; 0 keeps them" min:"1s" zero:"keeps them"`
	ClusterMeshMaxKeys            int           `flag:"clustermesh-max-keys" usage:"How many services, and how many service exports, are kept of a remote cluster; 0 for any number" min:"0"`
	ClusterMeshEnableEndpointSync bool          `flag:"clustermesh-enable-endpoint-sync" usage:"Write EndpointSlices for the endpoints that global services have in remote clusters"`
}

// DefaultConfig holds the defaults of the flags.
var DefaultConfig = Config{ClusterMeshSyncTimeout: time.Minute, ClusterMeshMaxKeys: 50_000}

// InUse is the condition of modules that need what remote clusters publish.
var InUse = cell.When("remote clusters are read", []string{"clustermesh-enable-endpoint-sync", "clustermesh-enable-mcs-api", "clustermesh-config"},
	func(c Config, shared cluster.Config) bool {
		return c.ClusterMeshConfig != "" && (c.ClusterMeshEnableEndpointSync || shared.ClusterMeshEnableMCSAPI)
	})

// SyncsEndpoints is the condition of modules that need the services of remote clusters.
var SyncsEndpoints = cell.When("services of remote clusters get EndpointSlices", []string{"clustermesh-enable-endpoint-sync", "clustermesh-config"},
	func(c Config) bool { return c.ClusterMeshEnableEndpointSync && c.ClusterMeshConfig != "" })
