// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crd

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/api/v2alpha1"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/identitygc"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell deletes unused CiliumIdentities.
var Cell = cell.Module("identitygc.crd", "Marks CiliumIdentities that no endpoint uses, and deletes those whose mark stays",
	cell.EnabledBy(identitygc.Enabled),
	cell.EnabledBy(cell.When("identities are kept as objects", []string{"identity-allocation-mode", "kvstore"}, cluster.Config.IdentitiesInCRD)),
	cell.EnabledBy(cell.When("objects tell which identities endpoints have", referenceFlags, hasReferences)),
	k8s.RBAC(k8s.Allow("list,watch,update,delete", identities.GroupResource())),
	k8s.OptionalRBAC(k8s.Allow("get", identities.GroupResource())),

	cell.Metrics(newMarkMetrics),
	cell.ProvidePrivate(newController),
	cell.Job("sweep", (*controller).run),
	cell.Job("mark", (*controller).runMarks),
	endpointReferrers, sliceReferrers, podReferrersModule,
)

var (
	endpointReferrers = cell.Module("endpoints", "Tells which identities CiliumEndpoints have",
		cell.EnabledBy(cell.When("agents make CiliumEndpoints", []string{"kvstore", "disable-endpoint-crd"}, cluster.Config.EndpointCRD)),
		k8s.RBAC(k8s.Allow("list,watch", v2.CiliumEndpointResource.GroupResource())),
		cell.Provide(newEndpoints),
	)
	sliceReferrers = cell.Module("slices", "Tells which identities CiliumEndpointSlices have",
		cell.EnabledBy(cell.When("there are CiliumEndpointSlices", []string{slicesFlag}, func(shared cluster.Config) bool { return shared.EnableCiliumEndpointSlice })),
		k8s.RBAC(k8s.Allow("list,watch", v2alpha1.CiliumEndpointSliceResource.GroupResource())),
		cell.Provide(newSlices),
	)
	podReferrersModule = cell.Module("pods", "Tells which identities pods have",
		cell.EnabledBy(cell.When("the operator makes identities", []string{"identity-management-mode", "operator-manages-identities"}, cluster.Config.OperatorIdentities)),
		k8s.RBAC(k8s.Allow("list,watch", schema.GroupResource{Resource: "pods"})),
		cell.Provide(newPods, newPodView),
	)
)

var identities = v2.CiliumIdentityResource

const slicesFlag = "enable-cilium-endpoint-slice"

var referenceFlags = []string{"kvstore", "disable-endpoint-crd", slicesFlag}

// hasReferences is false where endpoints are in the kvstore alone, so that references are unknown.
func hasReferences(shared cluster.Config) bool {
	return shared.EndpointCRD() || shared.EnableCiliumEndpointSlice
}
