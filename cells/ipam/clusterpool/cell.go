// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterpool

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell allocates pod CIDRs to nodes in the IPAM mode cluster-pool.
var Cell = cell.Module("ipam.clusterpool", "Allocates pod CIDRs to nodes from the cluster CIDRs",
	cell.Config(Config{ClusterPoolIPv4MaskSize: 24, ClusterPoolIPv6MaskSize: 112}),
	cell.EnabledBy(cell.When("cluster-pool is the IPAM mode", []string{"ipam"}, func(c cluster.Config) bool { return c.IPAM == mode })),
	cell.Validate(validate),
	cell.Annotate(cluster.Allocator{Mode: mode}),
	k8s.RBAC(
		k8s.Allow("get,list,watch,update", v2.CiliumNodeResource.GroupResource()),
		k8s.Allow("update", status),
		k8s.Allow("list,watch", schema.GroupResource{Resource: "pods"}), // of agents
	),
	k8s.EventRBAC(),

	cell.Metrics(newMetrics),
	cell.Metrics(newSyncMetrics),
	cell.ProvidePrivate(newAllocator, newController),
	cell.Job("write", (*controller).write),
	cell.Job("watch", (*controller).watchNodes, cell.Retry(time.Second, time.Minute)),
	cell.Job("agents", (*controller).watchAgents),
	cell.Job("retry", (*controller).retry),
)

const mode = "cluster-pool"
