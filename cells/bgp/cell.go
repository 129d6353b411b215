// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package bgp

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell writes CiliumBGPNodeConfigs.
var Cell = cell.Module("bgp", "Writes the CiliumBGPNodeConfigs of nodes from CiliumBGPClusterConfigs",
	cell.Config(Config{StatusReport: true, RouterIDMode: routerIDByAgent}),
	cell.EnabledBy(cell.When("agents speak BGP", []string{"enable-bgp-control-plane"}, func(c cluster.Config) bool { return c.EnableBGPControlPlane })),
	k8s.RBAC(
		k8s.Allow("create,delete", nodeConfigs.Resource().GroupResource()),
		k8s.Allow("get", clusterConfigs.Resource().GroupResource()), // before a CiliumBGPNodeConfig is deleted
		k8s.Allow("get", ciliumio.Nodes.Resource().GroupResource()),
	),
	k8s.OptionalRBAC( // for conditions, where the installed CRDs have them
		k8s.Allow("get", definitions.GroupResource()),
		k8s.Allow("get", peerConfigs.Resource().GroupResource()),
		k8s.Allow("update", statusOf(clusterConfigs.Resource())),
		k8s.Allow("update", statusOf(peerConfigs.Resource())),
		k8s.Allow("get", corev1.Resource("secrets")),
	),
	k8s.EventRBAC(),

	cell.Metrics(newMetrics),
	stream.Provide(clusterConfigs),
	stream.Provide(overrides),
	stream.Provide(nodeConfigs),
	stream.Provide(peerConfigs),
	stream.Provide(nodes),
	reconcile.Controller(newController,
		reconcile.Watches(clusterConfigs, (*controller).clusterConfigChanged),
		reconcile.Watches(overrides, (*controller).overrideChanged),
		reconcile.Watches(nodeConfigs, (*controller).nodeConfigChanged),
		reconcile.Watches(peerConfigs, (*controller).peerConfigChanged),
		reconcile.Watches(nodes, (*controller).nodeChanged),
		reconcile.AfterPredecessor[*controller](nodeConfigs),
		reconcile.Writes[*controller](nodeConfigs.Resource()),
	),
)
