// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identitygc

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/api/v2alpha1"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell deletes identities that no endpoint uses any more.
var Cell = cell.Module("identitygc", "Deletes identities that no endpoint uses any more",
	cell.Config(Config{
		IdentityGCInterval: 15 * time.Minute, IdentityHeartbeatTimeout: 30 * time.Minute,
		IdentityGCRateLimit: 2500, IdentityGCRateInterval: time.Minute,
	}),
	cell.EnabledBy(cell.When("identities are looked at", []string{intervalFlag}, func(c Config) bool { return c.IdentityGCInterval != 0 })),

	cell.Metrics(newMetrics),
	cell.Provide(newBudget), // of all kinds of identities together
	crd,
)

var crd = cell.Module("crd", "Marks CiliumIdentities that no endpoint uses, and deletes those whose mark nobody takes off",
	cell.EnabledBy(cell.When("identities are kept as objects", []string{"identity-allocation-mode", "kvstore"}, inObjects)),
	cell.EnabledBy(cell.When("objects tell which identities endpoints have", toldFlags, isTold)),
	k8s.RBAC(k8s.Allow("list,watch,update,delete", identities.GroupResource())),
	k8s.OptionalRBAC(k8s.Allow("get", identities.GroupResource())),

	cell.Metrics(newMarkMetrics),
	cell.ProvidePrivate(newCollector),
	cell.Job("sweep", (*collector).sweepJob),
	cell.Job("mark", (*collector).markJob),
	endpointUsers, sliceUsers, podUsers,
)

var (
	endpointUsers = cell.Module("endpoints", "Tells which identities CiliumEndpoints have",
		cell.EnabledBy(cell.When("agents make CiliumEndpoints", []string{"kvstore", "disable-endpoint-crd"}, cluster.Config.EndpointCRD)),
		k8s.RBAC(k8s.Allow("list,watch", v2.CiliumEndpointResource.GroupResource())),
		cell.Provide(newEndpoints),
	)
	sliceUsers = cell.Module("slices", "Tells which identities CiliumEndpointSlices have",
		cell.EnabledBy(cell.When("there are CiliumEndpointSlices", []string{slicesFlag}, func(shared cluster.Config) bool { return shared.EnableCiliumEndpointSlice })),
		k8s.RBAC(k8s.Allow("list,watch", v2alpha1.CiliumEndpointSliceResource.GroupResource())),
		cell.Provide(newSlices),
	)
	podUsers = cell.Module("pods", "Tells which identities pods have",
		cell.EnabledBy(cell.When("the operator makes identities", []string{"identity-management-mode", "operator-manages-identities"}, cluster.Config.OperatorIdentities)),
		k8s.RBAC(k8s.Allow("list,watch", schema.GroupResource{Resource: "pods"})),
		cell.Provide(newPods),
	)
)

var identities = v2.CiliumIdentityResource

func inObjects(shared cluster.Config) bool { return shared.IdentityMode() != "kvstore" }

const slicesFlag = "enable-cilium-endpoint-slice"

var toldFlags = []string{"kvstore", "disable-endpoint-crd", slicesFlag}

// isTold is false where endpoints are told to the kvstore alone: nobody could say
// which identities are in use.
func isTold(shared cluster.Config) bool {
	return shared.EndpointCRD() || shared.EnableCiliumEndpointSlice
}
