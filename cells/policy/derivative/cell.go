// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package derivative

import (
	"time"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/networkpolicy"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell writes derived policies. The cells of clouds provide what looks up their groups.
var Cell = cell.Module("policy.derivative", "Derives network policies with CIDRs from those that refer to groups of a cloud",
	cell.Config(Config{DerivedPoliciesRefreshInterval: 5 * time.Minute}),
	cell.EnabledBy(cell.When("groups are looked up", []string{"derived-policies-refresh-interval"}, Config.enabled)),
	k8s.RBAC(
		k8s.Allow("create,deletecollection", v2.CiliumNetworkPolicyResource.GroupResource()),
		k8s.Allow("create,deletecollection", v2.CiliumClusterwideNetworkPolicyResource.GroupResource()),
	),
	k8s.OptionalRBAC( // in place of deletecollection
		k8s.Allow("delete", v2.CiliumNetworkPolicyResource.GroupResource()),
		k8s.Allow("delete", v2.CiliumClusterwideNetworkPolicyResource.GroupResource()),
	),
	cell.Metrics(newMetrics),
	reconcile.Controller(newController,
		reconcile.Watches(networkpolicy.Policies, (*controller).policyChanged),
		reconcile.Watches(networkpolicy.ClusterwidePolicies, (*controller).clusterwidePolicyChanged),
		reconcile.Writes[*controller](v2.CiliumNetworkPolicyResource, "status"),
		reconcile.Writes[*controller](v2.CiliumClusterwideNetworkPolicyResource, "status"),
	),
)
