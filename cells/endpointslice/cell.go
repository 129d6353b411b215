// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell gathers endpoints in CiliumEndpointSlices.
var Cell = cell.Module("endpointslice", "Gathers endpoints in CiliumEndpointSlices, which agents watch instead of single endpoints",
	cell.Config(defaultConfig),
	cell.Module("endpoints", "Makes CiliumEndpointSlices of CiliumEndpoints",
		cell.EnabledBy(cell.When("CiliumEndpointSlices are made of CiliumEndpoints", sourceFlags, ofEndpoints)),
		k8s.RBAC(k8s.Allow("list,watch", v2.CiliumEndpointResource.GroupResource())),
		cell.ProvidePrivate(newFromEndpoints),
		gathering,
	),
	cell.Module("pods", "Makes CiliumEndpointSlices of pods, their identities and their nodes",
		cell.EnabledBy(cell.When("CiliumEndpointSlices are made of pods", sourceFlags, cluster.Config.SlimEndpointSlices)),
		k8s.RBAC(k8s.Allow("list,watch", corev1.SchemeGroupVersion.WithResource("pods").GroupResource())),
		cell.ProvidePrivate(newFromPods),
		gathering,
	),
	cell.Module("cleanup", "Deletes CiliumEndpointSlices long after they were switched off",
		cell.EnabledBy(cell.When("no CiliumEndpointSlices are made", []string{"enable-cilium-endpoint-slice", cleanupFlag}, leftOver)),
		k8s.OptionalRBAC(
			k8s.Allow("list,delete", resource.GroupResource()),
			k8s.Allow("get", definitions.GroupResource()),
		),
		cell.Lasting(newCleanProgress),
		cell.Job("clean", newCleaner),
	),
)

// gathering is what makes slices, whatever of.
var gathering = cell.Set(
	cell.Validate(validate),
	k8s.RBAC(
		k8s.Allow("get,list,watch,create,update,delete", resource.GroupResource()),
		k8s.Allow("list,watch", v2.CiliumNodeResource.GroupResource()),
	),
	cell.Metrics(newMetrics),
	cell.ProvidePrivate(newAPI, newKeeper),
	cell.Invoke(tellOldModes),
	cell.Job("write", (*keeper).writeJob),
	cell.Job("batch", (*keeper).batchJob),
	cell.Job("begin", (*keeper).beginJob),
	cell.Job("slices", (*keeper).slicesJob),
	cell.Job("endpoints", (*keeper).endpointsJob),
	cell.Job("audit", (*keeper).auditJob),
	cell.Job("nodes", (*keeper).nodesJob),
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

var sourceFlags = []string{"enable-cilium-endpoint-slice", "ces-controller-mode"}

func ofEndpoints(c cluster.Config) bool {
	return c.EnableCiliumEndpointSlice && !c.SlimEndpointSlices()
}

func leftOver(c Config, shared cluster.Config) bool {
	return !shared.EnableCiliumEndpointSlice && c.CESCleanupGrace > 0
}
