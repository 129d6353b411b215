// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretsync

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/networkpolicy"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/secretref"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell copies secrets to the namespaces that agents read.
var Cell = cell.Module("secretsync", "Copies the secrets that Ingresses, Gateways and network policies refer to",
	cell.EnabledBy(cell.When("secrets are copied", flags, secretref.OfAny)),
	k8s.RBAC(k8s.Allow("get", secretsResource)),
	k8s.OptionalRBAC(k8s.Allow("create,update,delete", secretsResource)), // in the namespaces of copies, by Roles there
	k8s.EventRBAC(),

	cell.Metrics(newMetrics),
	stream.Provide(secrets),
	cell.Provide(secretref.NamesOf),
	reconcile.Controller(newController,
		reconcile.Watches(secrets, (*controller).secretChanged),
		reconcile.Follows((*controller).follow),
	),
	policies, gateways, configurations, leftOver, consenting, authorities,
)

var (
	policies = cell.Module("policies", "Reports the secrets of network policies, which agents get copies of",
		cell.EnabledBy(cell.When("secrets of network policies are copied", secretref.PolicyFlags, secretref.OfPolicies)),
		networkpolicy.Policies.Permissions(), networkpolicy.ClusterwidePolicies.Permissions(),
		cell.Provide(newPolicySource),
	)
	gateways = cell.Module("gateways", "Reports the TLS secrets of Gateways, which agents get copies of",
		cell.EnabledBy(cell.When("secrets of Gateways are copied", secretref.GatewayFlags, secretref.OfGateways)),
		gatewayKind.Permissions(), classKind.Permissions(), grantKind.Permissions(),
		k8s.OptionalRBAC(k8s.Allow("list,watch", setKind.Resource().GroupResource())),
		stream.Provide(gatewayKind, quiet), stream.Provide(classKind, quiet), stream.Provide(grantKind, quiet),
		stream.Provide(setKind, stream.OnDemand(), quiet),
		cell.Provide(newGatewaySource),
	)
	configurations = cell.Module("configurations", "Keeps the names of copies that configurations of Gateways and Ingresses have, and reports their secrets where those are not copied any more",
		cell.EnabledBy(cell.When("secrets are copied where those of Gateways or Ingresses are", flags, secretref.NamedByConfigurations)),
		envoy.Objects.Permissions(),
		cell.Provide(newConfigurationSources),
	)
	leftOver = cell.Module("left", "Reports the TLS secrets in the configurations of Gateways and Ingresses that were left, of which none are served",
		cell.EnabledBy(cell.When("secrets of network policies are copied where those of Gateways or Ingresses were, and none of these are served", flags, secretref.LeftByConfigurations)),
		leftKind.Permissions(), stream.Provide(leftKind, quiet),
		cell.Provide(newLeftSources),
	)
	authorities = cell.Module("authorities", "Reports the ConfigMaps of BackendTLSPolicies, which agents get copies of",
		cell.EnabledBy(cell.When("secrets of Gateways are copied", secretref.GatewayFlags, secretref.OfGateways)),
		k8s.OptionalRBAC(
			k8s.Allow("list,watch", tlsPolicyKind.Resource().GroupResource()),
			k8s.Allow("get,list,watch", corev1.Resource("configmaps")),
		),
		stream.Provide(tlsPolicyKind, stream.OnDemand(), quiet),
		stream.Provide(configMaps, stream.OnDemand()),
		cell.Provide(newAuthoritySource),
	)
)

// quiet streams are those of the Gateway API, whose CRDs may never come.
var quiet = stream.WithHealth(nil)

var flags = slices.Compact(slices.Sorted(slices.Values(slices.Concat(secretref.IngressFlags, secretref.GatewayFlags, secretref.PolicyFlags))))
