// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslicesync

import "time"

// Config is how slices are written.
type Config struct {
	ClusterMeshConcurrentServiceEndpointSyncs int           `flag:"clustermesh-concurrent-service-endpoint-syncs" usage:"Services whose EndpointSlices of remote clusters are written at once" min:"1"`
	ClusterMeshEndpointUpdatesBatchPeriod     time.Duration `flag:"clustermesh-endpoint-updates-batch-period" usage:"How long changes of a remote service are gathered before they are written" min:"1ms" zero:"writes each at once"`
	ClusterMeshEndpointsPerSlice              int           `flag:"clustermesh-endpoints-per-slice" usage:"Maximum number of endpoints in an EndpointSlice of a remote cluster" min:"1" max:"1000"`
	ClusterMeshMaxSlicesPerService            int           `flag:"clustermesh-max-slices-per-service" usage:"Maximum number of EndpointSlices that a Service has for a remote cluster; 0 for any number" min:"0"`
}

var defaults = Config{
	ClusterMeshConcurrentServiceEndpointSyncs: 5,
	ClusterMeshEndpointUpdatesBatchPeriod:     500 * time.Millisecond,
	ClusterMeshEndpointsPerSlice:              100,
	ClusterMeshMaxSlicesPerService:            100,
}
