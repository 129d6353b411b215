// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointgc

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell deletes orphaned CiliumEndpoints.
var Cell = cell.Module("endpointgc", "Deletes CiliumEndpoints whose pod is gone or finished",
	cell.Config(Config{CiliumEndpointGCInterval: 5 * time.Minute}),
	cell.Validate(validate),
	cell.Module("periodic", "Looks again and again for CiliumEndpoints whose pod is gone or finished",
		cell.EnabledBy(cell.When("agents make CiliumEndpoints, and an interval is set", modeFlags, periodic)),
		k8s.RBAC(
			k8s.Allow("list,watch,delete", endpoints.GroupResource()),
			k8s.Allow("get,list,watch", pods.GroupResource()),
			k8s.Allow("get,list,watch", v2.CiliumNodeResource.GroupResource()),
		),
		k8s.OptionalRBAC(k8s.Allow("patch", endpoints.GroupResource())),
		k8s.EventRBAC(),

		cell.Metrics(newMetrics),
		cell.ProvidePrivate(newAPI, newController),
		cell.Job("sweep", (*controller).run),
		cell.Job("watch", (*controller).watch),
		cell.Job("adopt", (*controller).runOwnerUIDs),
	),
	cell.Module("once", "Deletes all CiliumEndpoints, once, since agents make none",
		cell.EnabledBy(cell.When("agents make no CiliumEndpoints", modeFlags, once)),
		k8s.RBAC(
			k8s.Allow("list,delete", endpoints.GroupResource()),
			k8s.Allow("get", definitions.GroupResource()),
		),

		cell.Metrics(newMetrics),
		cell.Job("clean", newOnce),
	),
)

var (
	endpoints   = v2.CiliumEndpointResource
	pods        = corev1.SchemeGroupVersion.WithResource("pods")
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

const intervalFlag = "cilium-endpoint-gc-interval"

var modeFlags = []string{intervalFlag, "disable-endpoint-crd", "kvstore", "identity-allocation-mode"}

func periodic(c Config, shared cluster.Config) bool {
	return c.CiliumEndpointGCInterval != 0 && shared.EndpointCRD()
}

func once(c Config, shared cluster.Config) bool {
	return !shared.EndpointCRD() || c.CiliumEndpointGCInterval == 0 && shared.IdentityMode() == "kvstore"
}

// Config is the interval of garbage collections.
type Config struct {
	CiliumEndpointGCInterval time.Duration `flag:"cilium-endpoint-gc-interval" usage:"Interval between garbage collections of orphaned CiliumEndpoints. 0 deletes all CiliumEndpoints once at startup (only with kvstore identity allocation)" min:"100ms" zero:"deletes all endpoints once"`
}
