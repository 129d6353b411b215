// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package multipool

import (
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell allocates CIDRs of CiliumPodIPPools to nodes in the IPAM mode multi-pool.
var Cell = cell.Module("ipam.multipool", "Allocates CIDRs of CiliumPodIPPools to nodes",
	cell.Config(Config{MultiPoolMigrationWorkers: 16, IPAMDefaultIPPool: "default"}),
	cell.EnabledBy(cell.When("multi-pool is the IPAM mode", []string{"ipam"}, func(c cluster.Config) bool { return c.IPAM == mode })),
	cell.Validate(validate),
	cell.Annotate(cluster.Allocator{Mode: mode}),
	k8s.RBAC(k8s.Allow("create", podIPPools.Resource().GroupResource())),
	k8s.EventRBAC(),

	cell.Metrics(newMetrics),
	stream.Provide(podIPPools),
	reconcile.Controller(newController,
		reconcile.Watches(podIPPools, (*controller).poolChanged),
		reconcile.WatchesModel(ciliumio.Nodes, (*controller).nodeChanged, (*controller).nodeSetAside),
		reconcile.AfterPredecessor[*controller](ciliumio.Nodes),
		reconcile.Writes[*controller](v2.CiliumNodeResource, "status"),
	),
	cell.ProvidePrivate(newCreator, newMigrator),
	cell.Job("create", (*creator).run),
	cell.Job("migrate", (*migrator).run),
)

const mode = "multi-pool"
