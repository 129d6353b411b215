// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslicesync

import (
	"github.com/skep-operator/skep/resources/clustermesh"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell writes EndpointSlices for the endpoints of other clusters.
var Cell = cell.Module("endpointslicesync", "Writes EndpointSlices for the endpoints that global services have in other clusters",
	cell.Config(defaults),
	cell.EnabledBy(clustermesh.SyncsEndpoints),
	k8s.RBAC(k8s.Allow("create,delete", meshSlices.Resource().GroupResource())),

	cell.Metrics(newMetrics),
	stream.Provide(services),
	stream.Provide(meshSlices),
	reconcile.Controller(newController,
		reconcile.For[*controller](services),
		reconcile.Watches(meshSlices, (*controller).sliceChanged),
		reconcile.Follows((*controller).followClusters),
		reconcile.Follows((*controller).confirmServices),
		reconcile.Writes[*controller](meshSlices.Resource()),
	),
)
