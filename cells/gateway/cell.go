// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/agents"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/secretref"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell serves the Gateway API.
var Cell = cell.Module("gateway", "Serves Gateways and their routes with the Envoy of agents",
	cell.Config(defaultConfig),
	cell.EnabledBy(cell.When("Gateways are served", []string{"enable-gateway-api", "kube-proxy-replacement", "enable-node-port"}, envoyres.ServesGateways)),
	k8s.RBAC(
		k8s.Allow("create,delete", v2.CiliumEnvoyConfigResource.GroupResource()),
		k8s.Allow("create,delete", services.Resource().GroupResource()),
		k8s.Allow("get", definitions.Resource().GroupResource()),
	),
	statusRBAC(classes.Resource(), gateways.Resource(), httpRoutes.Resource(), grpcRoutes.Resource(), tlsRoutes.Resource()),
	optionalStatusRBAC(classConfigs.Resource(), tlsPolicyKind.Resource(), listenerSets.Resource(), tcpRoutes.Resource(), udpRoutes.Resource(), services.Resource()),
	k8s.EventRBAC(),
	envoyres.PlaceholderRBAC,

	cell.Metrics(newMetrics),
	stream.Provide(classes), stream.Provide(gateways), stream.Provide(httpRoutes), stream.Provide(grpcRoutes), stream.Provide(grants),
	stream.Provide(services), stream.Provide(namespaces), stream.Provide(secrets), stream.Provide(definitions),
	stream.Provide(tlsRoutes, stream.OnDemand()), stream.Provide(tlsRoutesAlpha, stream.OnDemand()), stream.Provide(imports, stream.OnDemand()), stream.Provide(classConfigs, stream.OnDemand()),
	stream.Provide(tcpRoutes, stream.OnDemand()), stream.Provide(tcpRoutesAlpha, stream.OnDemand()), stream.Provide(udpRoutes, stream.OnDemand()), stream.Provide(udpRoutesAlpha, stream.OnDemand()),
	stream.Provide(backendSlices, stream.OnDemand()), stream.Provide(portSlices, stream.OnDemand()),
	stream.Provide(tlsPolicyKind, stream.OnDemand()), stream.Provide(configMaps, stream.OnDemand()), stream.Provide(nodes, stream.OnDemand()),
	stream.ProvideSelected(agentPods, agents.Selected[envoyres.Agent[duty]], stream.OnDemand()),
	secretref.ProvideLeft[duty](func(c envoyres.Config) string { return c.GatewayAPISecretsNamespace }),
	stream.Provide(listenerSets, stream.OnDemand()), stream.Provide(ownedSlices, stream.OnDemand()), stream.Provide(ownedEndpoints, stream.OnDemand()),
	reconcile.Controller(newController,
		reconcile.Watches(definitions, (*controller).definitionChanged),
		reconcile.Watches(classes, (*controller).classChanged),
		reconcile.Watches(gateways, (*controller).gatewayChanged),
		reconcile.Watches(httpRoutes, func(c *controller, ch stream.Change[route.HTTP]) []slim.Key {
			return c.routeChanged(ch.Kind, ch.Object.Route())
		}),
		reconcile.Watches(grpcRoutes, func(c *controller, ch stream.Change[route.GRPC]) []slim.Key {
			return c.routeChanged(ch.Kind, ch.Object.Route())
		}),
		reconcile.Watches(grants, (*controller).grantChanged),
		reconcile.Watches(services, (*controller).serviceChanged),
		reconcile.Watches(namespaces, (*controller).namespaceChanged),
		reconcile.Watches(secrets, (*controller).secretChanged),
		reconcile.Watches(envoyres.Objects, (*controller).configChanged),
		watchesRoutes(tlsRoutes, (*controller).tlsOnDemand),
		watchesRoutes(tlsRoutesAlpha, (*controller).tlsAlphaOnDemand),
		watchesRoutes(tcpRoutes, (*controller).tcpOnDemand),
		watchesRoutes(tcpRoutesAlpha, (*controller).tcpAlphaOnDemand),
		watchesRoutes(udpRoutes, (*controller).udpOnDemand),
		watchesRoutes(udpRoutesAlpha, (*controller).udpAlphaOnDemand),
		reconcile.WatchesOnDemand(backendSlices, (*controller).backendsOnDemand, (*controller).backendChanged),
		reconcile.WatchesOnDemand(portSlices, (*controller).portSlicesOnDemand, (*controller).portSliceChanged),
		reconcile.WatchesOnDemand(imports, (*controller).importsOnDemand, (*controller).importChanged),
		reconcile.WatchesOnDemand(classConfigs, (*controller).classConfigsOnDemand, (*controller).classConfigChanged),
		reconcile.WatchesOnDemand(agentPods, (*controller).agentsOnDemand, func(c *controller, ch stream.Change[envoyres.Agent[duty]]) []slim.Key { return c.agents.Changed(ch) }),
		reconcile.WatchesOnDemand(nodes, (*controller).nodesOnDemand, (*controller).nodeChanged),
		reconcile.WatchesOnDemand(tlsPolicyKind, (*controller).policiesOnDemand, (*controller).policyChanged),
		reconcile.WatchesOnDemand(configMaps, (*controller).configMapsOnDemand, (*controller).configMapChanged),
		reconcile.WatchesOnDemand(listenerSets, (*controller).listenerSetsOnDemand, (*controller).listenerSetChanged),
		reconcile.WatchesOnDemand(ownedSlices, (*controller).slicesOnDemand, (*controller).sliceChanged),
		reconcile.WatchesOnDemand(ownedEndpoints, (*controller).endpointsOnDemand, (*controller).endpointsChanged),
		reconcile.Follows((*controller).followRole),
		reconcile.Follows((*controller).followRefusals),
		reconcile.Writes[*controller](v2.CiliumEnvoyConfigResource),
		reconcile.Writes[*controller](services.Resource()),
	),
)
