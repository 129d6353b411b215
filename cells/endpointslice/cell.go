// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell groups endpoints into CiliumEndpointSlices.
var Cell = cell.Module("endpointslice", "Groups endpoints into CiliumEndpointSlices, which agents watch instead of single endpoints",
	cell.Config(defaultConfig),
	cell.Module("endpoints", "Writes CiliumEndpointSlices from CiliumEndpoints",
		cell.EnabledBy(cell.When("CiliumEndpointSlices are made of CiliumEndpoints", sourceFlags, fromEndpoints)),
		k8s.RBAC(k8s.Allow("list,watch", v2.CiliumEndpointResource.GroupResource())),
		cell.ProvidePrivate(newEndpointSource),
		sliceController,
	),
	cell.Module("pods", "Writes CiliumEndpointSlices from pods, their identities and their nodes",
		cell.EnabledBy(cell.When("CiliumEndpointSlices are made of pods", sourceFlags, cluster.Config.SlimEndpointSlices)),
		k8s.RBAC(k8s.Allow("list,watch", corev1.SchemeGroupVersion.WithResource("pods").GroupResource())),
		k8s.EventRBAC(),
		cell.ProvidePrivate(newPodSource),
		sliceController,
	),
	cell.Module("cleanup", "Deletes CiliumEndpointSlices long after they were switched off",
		cell.EnabledBy(cell.When("no CiliumEndpointSlices are made", []string{"enable-cilium-endpoint-slice", cleanupFlag}, leftOver)),
		k8s.OptionalRBAC(
			k8s.Allow("list,delete", resource.GroupResource()),
			k8s.Allow("get", definitions.GroupResource()),
		),
		cell.Job("clean", newCleanup),
	),
)

// sliceController writes slices, whatever the source of endpoints.
var sliceController = cell.Set(
	cell.Validate(validate),
	k8s.RBAC(
		k8s.Allow("get,list,watch,create,update,delete", resource.GroupResource()),
		k8s.Allow("list,watch", v2.CiliumNodeResource.GroupResource()),
	),
	k8s.OptionalRBAC(k8s.Allow("list,watch", stream.Namespaces.Resource().GroupResource())),
	cell.Metrics(newMetrics),
	cell.ProvidePrivate(newAPI, newController),
	cell.Invoke(warnDeprecatedMode),
	cell.Job("write", (*controller).write),
	cell.Job("write-first", (*controller).writeFirst),
	cell.Job("turns", (*controller).giveTurns, cell.Retry(time.Second, time.Minute)),
	cell.Job("namespaces", (*controller).watchNamespaces),
	cell.Job("batch", (*controller).runBatch),
	cell.Job("begin", (*controller).bootstrap, cell.Retry(time.Second, time.Minute)),
	cell.Job("slices", (*controller).watchSlices, cell.Retry(time.Second, time.Minute)),
	cell.Job("endpoints", (*controller).watchEndpoints, cell.Retry(time.Second, time.Minute)),
	cell.Job("audit", (*controller).audit),
	cell.Job("nodes", (*controller).watchNodes),
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

var sourceFlags = []string{"enable-cilium-endpoint-slice", "ces-controller-mode"}

func fromEndpoints(c cluster.Config) bool {
	return c.EnableCiliumEndpointSlice && !c.SlimEndpointSlices()
}

func leftOver(c Config, shared cluster.Config) bool {
	return !shared.EnableCiliumEndpointSlice && c.CESCleanupGrace > 0
}
