// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package servicesync

import (
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/mirror"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell copies global Services to etcd.
var Cell = cell.Module("servicesync", "Copies global Services to etcd for other clusters",
	cell.Config(Config{EnableK8sEndpointSlice: true}),
	cell.EnabledBy(kvstore.InUse),
	cell.EnabledBy(cell.When("Services are synchronized", []string{"synchronize-k8s-services"}, func(c kvstore.Config) bool { return c.SynchronizeK8sServices })),

	cell.Metrics(newMetrics),
	stream.ProvideSelected(services, selectServices),
	stream.Provide(endpointSlices),
	mirror.Controller(kvstore.ServicesPrefix, newController,
		mirror.For[*controller](services),
		mirror.Watches(endpointSlices, (*controller).sliceChanged),
		mirror.Watches(stream.Namespaces, (*controller).namespaceChanged),
	),
	cell.Module("exports", "Tells other clusters that there are no service exports",
		cell.EnabledBy(cell.When("the multi-cluster services API is off", []string{"clustermesh-enable-mcs-api"}, func(c cluster.Config) bool { return !c.ClusterMeshEnableMCSAPI })),
		cell.Job("write", newExports),
	),
	slicesCell,
)
