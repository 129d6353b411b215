// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package validation

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/networkpolicy"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell sets the condition Valid of network policies.
var Cell = cell.Module("policy.validation", "Sets the Valid condition of network policies",
	cell.Config(Config{ValidateNetworkPolicy: true}),
	cell.EnabledBy(cell.When("network policies are validated", []string{"validate-network-policy"}, func(c Config) bool { return c.ValidateNetworkPolicy })),
	cell.EnabledBy(cell.When("agents enforce network policies", kindFlags, isNeeded)),
	k8s.RBAC(k8s.Allow("patch", statusOf("ciliumnetworkpolicies")), k8s.Allow("patch", statusOf("ciliumclusterwidenetworkpolicies"))),
	k8s.OptionalRBAC(
		k8s.Allow("get", v2.CiliumNetworkPolicyResource.GroupResource()), // where a patch is refused
		k8s.Allow("get", v2.CiliumClusterwideNetworkPolicyResource.GroupResource()),
	),
	k8s.EventRBAC(),
	cell.Metrics(newMetrics),
	reconcile.Controller(newController,
		reconcile.Watches(networkpolicy.Policies, (*controller).policyChanged),
		reconcile.Watches(networkpolicy.ClusterwidePolicies, (*controller).clusterwidePolicyChanged),
	),
)

var kindFlags = []string{"enable-cilium-network-policy", "enable-cilium-clusterwide-network-policy"}

// isNeeded reports whether agents enforce policies of one of the kinds. Those of 1.17 have no such options.
func isNeeded(c cluster.Config) bool {
	return !release.CheckedWherePolicies.In(c.Release) || c.EnableCiliumNetworkPolicy || c.EnableCiliumClusterwideNetworkPolicy
}

func statusOf(resource string) schema.GroupResource {
	return schema.GroupResource{Group: v2.SchemeGroupVersion.Group, Resource: resource + "/status"}
}
