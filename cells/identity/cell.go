// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/api/v2alpha1"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell makes the identities of pods.
var Cell = cell.Module("identity", "Makes the CiliumIdentities of pods, one for each set of labels",
	cell.Config(Config{}),
	cell.EnabledBy(cell.When("the operator makes identities", modeFlags, cluster.Config.OperatorIdentities)),
	cell.Validate(validate),
	k8s.RBAC(
		k8s.Allow("list,watch", schema.GroupResource{Resource: "pods"}),
		k8s.Allow("list,watch", schema.GroupResource{Resource: "namespaces"}),
		k8s.Allow("list,watch,create", v2.CiliumIdentityResource.GroupResource()),
		k8s.Allow("list,watch", v2.CiliumNodeResource.GroupResource()),
	),
	k8s.OptionalRBAC( // one of them, as the mode is
		k8s.Allow("list,watch", v2.CiliumEndpointResource.GroupResource()),
		k8s.Allow("list,watch", v2alpha1.CiliumEndpointSliceResource.GroupResource()),
	),
	k8s.EventRBAC(),

	cell.Metrics(newMetrics),
	cell.Lasting(newFilter), // agents read the file once, too
	cell.ProvidePrivate(newMaker),
	cell.Provide(newAssignments),
	cell.Job("write", (*maker).write),
	cell.Job("pods", (*maker).seePods),
	cell.Job("namespaces", (*maker).seeNamespaces),
	cell.Job("nodes", (*maker).seeNodes),
	cell.Job("identities", (*maker).seeIdentities),
	cell.Job("endpoints", (*maker).seeEndpoints),
	cell.Job("tend", (*maker).tend),
)

var modeFlags = []string{"identity-management-mode", "operator-manages-identities"}
