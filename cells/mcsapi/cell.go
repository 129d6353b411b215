// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mcsapi

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/mirror"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell serves the multi-cluster services API.
var Cell = cell.Module("mcsapi", "Serves the multi-cluster services API: ServiceImports and derived Services of what clusters export",
	cell.Config(defaults),
	cell.EnabledBy(cell.When("the multi-cluster services API is on", []string{"clustermesh-enable-mcs-api"}, func(c cluster.Config) bool { return c.ClusterMeshEnableMCSAPI })),
	k8s.RBAC(
		k8s.Allow("create,delete", imports.Resource().GroupResource()),
		k8s.Allow("create,delete", services.Resource().GroupResource()),
	),
	k8s.OptionalRBAC( // the role of the original's chart has few of them
		k8s.Allow("get", exports.Resource().GroupResource()),
		k8s.Allow("update", statusOf(exports.Resource())),
		k8s.Allow("update", statusOf(imports.Resource())),
		k8s.Allow("get,create,update,delete", sliceCopies.Resource().GroupResource()),
	),
	k8s.EventRBAC(),

	cell.Metrics(newMetrics),
	stream.Provide(exports),
	stream.Provide(imports),
	stream.Provide(services),
	stream.Provide(sliceCopies),
	stream.Provide(endpointSlices, stream.OnDemand()),
	reconcile.Controller(newController,
		reconcile.For[*controller](imports),
		reconcile.Watches(exports, (*controller).exportChanged),
		reconcile.Watches(services, (*controller).serviceChanged),
		reconcile.Watches(stream.Namespaces, (*controller).namespaceChanged),
		reconcile.Watches(sliceCopies, (*controller).copyChanged),
		reconcile.WatchesOnDemand(endpointSlices, (*controller).slicesOnDemand, (*controller).sliceChanged),
		reconcile.Follows((*controller).followClusters),
		reconcile.Follows((*controller).confirmObjects),
		reconcile.Follows((*controller).reportLeftOut),
		reconcile.Writes[*controller](imports.Resource()),
		reconcile.Writes[*controller](services.Resource()),
	),
	cell.Module("exports", "Copies ServiceExports to etcd for other clusters",
		cell.EnabledBy(kvstore.InUse),
		cell.EnabledBy(cell.When("Services are synchronized", []string{"synchronize-k8s-services"}, func(c kvstore.Config) bool { return c.SynchronizeK8sServices })),
		mirror.Controller(kvstore.ServiceExportsPrefix, newExporter,
			mirror.For[*exporter](exports),
			mirror.For[*exporter](services),
			mirror.Watches(stream.Namespaces, (*exporter).namespaceChanged),
		),
	),
)

func statusOf(of schema.GroupVersionResource) schema.GroupResource {
	return schema.GroupResource{Group: of.Group, Resource: of.Resource + "/status"}
}
