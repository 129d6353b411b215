// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodeipam

import (
	"slices"
	"time"

	"github.com/skep-operator/skep/resources/cluster"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell writes addresses of nodes to Services.
var Cell = cell.Module("nodeipam", "Assigns addresses of nodes to LoadBalancer Services",
	cell.Config(Config{}),
	cell.EnabledBy(cell.When("Services get addresses of nodes", []string{"enable-node-ipam", "default-lb-service-ipam"}, cluster.Config.NodeIPAM)),
	k8s.RBAC(k8s.Allow("get", services.Resource().GroupResource()), k8s.Allow("update", status)),
	k8s.EventRBAC(),

	cell.Module("listeners", "Watches listeners on the network of the nodes, whose ports no Service gets",
		cell.EnabledBy(cell.When("Ingresses or Gateways listen on ports of the nodes", slices.Concat(envoyres.AtNodesFlags, []string{"node-ipam-join-namespaces"}), hasListeners)),
		envoyres.Objects.Permissions(),
		cell.Provide(newListeners),
	),

	cell.Metrics(newMetrics),
	stream.Provide(services),
	stream.Provide(nodes),
	stream.Provide(endpointSlices, stream.OnDemand(), stream.WithLinger(slicesLinger)),
	reconcile.Controller(newController,
		reconcile.For[*controller](services),
		reconcile.Watches(services, (*controller).serviceChanged),
		reconcile.Watches(nodes, (*controller).nodeChanged),
		reconcile.WatchesOnDemand(endpointSlices, (*controller).slicesOnDemand, (*controller).sliceChanged),
		reconcile.Follows((*controller).followListeners),
	),
)

// hasListeners is where a listener of Envoy may have a port of a Service.
func hasListeners(own Config, e envoyres.Config, shared cluster.Config) bool {
	return !own.NodeIPAMJoinNamespaces && envoyres.ListensAtNodes(e, shared)
}

// slicesLinger is how long EndpointSlices are watched after the last Service that needs them, or after a term: a leader
// that loses its lease and takes it again costs no list.
const slicesLinger = 10 * time.Minute
