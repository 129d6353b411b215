// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointgc

import (
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell deletes CiliumEndpoints that are left over.
var Cell = cell.Module("endpointgc", "Deletes CiliumEndpoints whose pod is gone or finished",
	cell.Config(Config{CiliumEndpointGCInterval: 5 * time.Minute}),
	cell.Module("periodic", "Looks again and again for CiliumEndpoints whose pod is gone or finished",
		cell.EnabledBy(cell.When("agents make CiliumEndpoints", modeFlags, periodic)),
		k8s.RBAC(
			k8s.Allow("list,watch,delete", endpoints.GroupResource()),
			k8s.Allow("get,list,watch", pods.GroupResource()),
			k8s.Allow("get,list,watch", v2.CiliumNodeResource.GroupResource()),
		),
		k8s.OptionalRBAC(k8s.Allow("patch", endpoints.GroupResource())),
		k8s.EventRBAC(),

		cell.Metrics(newMetrics),
		cell.ProvidePrivate(newAPI, newCollector),
		cell.Job("sweep", (*collector).sweepJob),
		cell.Job("watch", (*collector).watchJob),
		cell.Job("adopt", (*collector).adoptJob),
	),
	cell.Module("once", "Deletes all CiliumEndpoints, once, since agents make none",
		cell.EnabledBy(cell.When("agents make no CiliumEndpoints", modeFlags, once)),
		cell.Validate(validate),
		k8s.RBAC(
			k8s.Allow("list,delete", endpoints.GroupResource()),
			k8s.Allow("get", definitions.GroupResource()),
		),

		cell.Metrics(newMetrics),
		cell.Lasting(newProgress),
		cell.ProvidePrivate(newAPI),
		cell.Job("clean", newCleaner),
	),
)

var (
	endpoints   = v2.CiliumEndpointResource
	pods        = corev1.SchemeGroupVersion.WithResource("pods")
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

const intervalFlag = "cilium-endpoint-gc-interval"

var modeFlags = []string{intervalFlag, "disable-endpoint-crd", "kvstore"}

func periodic(c Config, shared cluster.Config) bool { return !once(c, shared) }
func once(c Config, shared cluster.Config) bool {
	return c.CiliumEndpointGCInterval == 0 || !shared.EndpointCRD()
}

// Config says how often endpoints are looked at.
type Config struct {
	CiliumEndpointGCInterval time.Duration
}

// Flags implements cell.Flagger.
func (c Config) Flags(fs *pflag.FlagSet) {
	fs.Duration(intervalFlag, c.CiliumEndpointGCInterval, "Time between two looks for CiliumEndpoints that are left over. 0 deletes all of them once, and is for clusters whose identities are in a kvstore")
}
