// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package derivative

import (
	"time"

	"github.com/skep-operator/skep/resources/agents"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/networkpolicy"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell writes derived policies and CIDR groups. The cells of clouds provide what looks up their groups.
var Cell = module(timing{leftovers: time.Minute, overlap: time.Minute, recheck: 5 * time.Second})

func module(t timing) cell.Cell {
	return cell.Module("policy.derivative", "Gives agents the CIDRs of groups of a cloud that network policies refer to",
		cell.Config(Config{DerivedPoliciesRefreshInterval: 5 * time.Minute, PolicyExternalGroupSyncInterval: 10 * time.Minute}),
		cell.EnabledBy(cell.When("groups are looked up", []string{"derived-policies-refresh-interval"}, Config.enabled)),
		k8s.RBAC(
			k8s.Allow("create,deletecollection", v2.CiliumNetworkPolicyResource.GroupResource()),
			k8s.Allow("create,deletecollection", v2.CiliumClusterwideNetworkPolicyResource.GroupResource()),
		),
		k8s.OptionalRBAC(
			k8s.Allow("delete", v2.CiliumNetworkPolicyResource.GroupResource()), // in place of deletecollection
			k8s.Allow("delete", v2.CiliumClusterwideNetworkPolicyResource.GroupResource()),
			k8s.Allow("get,create,update,delete", cidrGroups.Resource().GroupResource()), // charts before 1.20 do not
		),
		k8s.EventRBAC(),
		cell.Metrics(newMetrics),
		stream.Provide(cidrGroups, stream.OnDemand()),
		cell.ProvidePrivate(func() timing { return t }),
		reconcile.Controller(newController,
			reconcile.Watches(networkpolicy.Policies, (*controller).policyChanged),
			reconcile.Watches(networkpolicy.ClusterwidePolicies, (*controller).clusterwidePolicyChanged),
			reconcile.Watches(agents.Pods, (*controller).podChanged),
			reconcile.WatchesOnDemand(cidrGroups, (*controller).cidrGroupsOnDemand, (*controller).cidrGroupChanged),
			reconcile.Writes[*controller](v2.CiliumNetworkPolicyResource, "status"),
			reconcile.Writes[*controller](v2.CiliumClusterwideNetworkPolicyResource, "status"),
		),
	)
}
