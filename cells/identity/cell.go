// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/api/v2alpha1"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell creates the identities of pods. Where agents do, it only finds out which pod has which.
var Cell = cell.Module("identity", "Creates the CiliumIdentities of pods, one per label set of the agents' releases",
	cell.Config(Config{IdentityBrake: true}),
	cell.EnabledBy(cell.When("the operator makes identities, or slices of pods", slices.Concat(modeFlags, []string{slicesFlag, "ces-controller-mode"}), isNeeded)),
	cell.EnabledBy(cell.When("agents distinguish endpoints", policyFlags, distinguishesEndpoints)),
	cell.Validate(validate),
	k8s.RBAC(
		k8s.Allow("list,watch", schema.GroupResource{Resource: "pods"}),
		k8s.Allow("list,watch", schema.GroupResource{Resource: "namespaces"}),
		k8s.Allow("list,watch", v2.CiliumIdentityResource.GroupResource()),
		k8s.Allow("list,watch", v2.CiliumNodeResource.GroupResource()),
	),
	k8s.EventRBAC(),
	cell.Module("writes", "Lets the duty write CiliumIdentities",
		cell.EnabledBy(cell.When("the operator makes identities", modeFlags, cluster.Config.OperatorIdentities)),
		k8s.RBAC(k8s.Allow("create", v2.CiliumIdentityResource.GroupResource())),
		k8s.OptionalRBAC(k8s.Allow("get,update", v2.CiliumIdentityResource.GroupResource())), // of edited ones
	),
	cell.Module("endpoints", "Indexes CiliumEndpoints by their numeric identity",
		cell.EnabledBy(cell.When("agents make CiliumEndpoints, and these are not gathered in slices", []string{"kvstore", "disable-endpoint-crd", slicesFlag}, fromEndpoints)),
		k8s.RBAC(k8s.Allow("list,watch", v2.CiliumEndpointResource.GroupResource())),
		cell.Provide(newEndpointIndex),
	),
	cell.Module("slices", "Indexes the endpoints in CiliumEndpointSlices by their numeric identity",
		cell.EnabledBy(cell.When("there are CiliumEndpointSlices", []string{slicesFlag}, fromSlices)),
		k8s.RBAC(k8s.Allow("list,watch", v2alpha1.CiliumEndpointSliceResource.GroupResource())),
		cell.Provide(newSliceIndex),
	),

	cell.Metrics(newMetrics),
	cell.ProvideProcess(newFilters), // agents read the file once, too
	cell.ProvidePrivate(newController),
	cell.Provide(newAssignments),
	cell.Job("write", (*controller).write),
	cell.Job("agents", (*controller).watchAgents),
	cell.Job("pods", (*controller).watchPods),
	cell.Job("namespaces", (*controller).watchNamespaces),
	cell.Job("nodes", (*controller).watchNodes),
	cell.Job("identities", (*controller).watchIdentities, cell.Retry(time.Second, time.Minute)),
	cell.Job("endpoints", (*controller).watchEndpoints, cell.Retry(time.Second, time.Minute)),
	cell.Job("tend", (*controller).runPeriodic, cell.Retry(time.Second, time.Minute)),
)

const slicesFlag = "enable-cilium-endpoint-slice"

var modeFlags = []string{"identity-management-mode", "operator-manages-identities"}

var policyFlags = []string{
	"enable-policy", "enable-k8s-networkpolicy", "enable-k8s-cluster-network-policy", "enable-cilium-network-policy",
	"enable-cilium-clusterwide-network-policy", "disable-endpoint-crd", slicesFlag, "identity-allocation-mode",
}

// isNeeded is true where the operator makes identities, and where slices of pods name those that agents make.
func isNeeded(c cluster.Config) bool { return c.OperatorIdentities() || c.SlimEndpointSlices() }

// distinguishesEndpoints is false where agents enforce no policy, and make no CiliumEndpoints: all pods have one identity then.
func distinguishesEndpoints(c cluster.Config) bool {
	return !release.EndpointsOffWithoutPolicies.In(c.Release) || !c.PolicyOff()
}
