// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/outside"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell has the options and the streams of duties that Module declares. It belongs to the process.
var Cell = cell.Module("cloudipam", "Watches what IPAM duties of clouds read, and has their options",
	cell.Config(defaultConfig),
	cell.EnabledBy(k8s.InUse),
	stream.Provide(ciliumNodes),
	stream.Provide(pendingPods),
)

// Module declares the IPAM duty of a cloud. mode is the value of --ipam that enables it. server is the cloud's API in
// metrics, health and plans: one word in lower case. newProvider is a constructor that returns a [Provider]; it takes the
// *outside.Door that its calls pass, and what else it needs. cells are more of the module. It belongs to the term of the
// leader, and needs Cell in the process.
func Module(id, title, mode, server string, newProvider any, cells ...cell.Cell) cell.Cell {
	newDoor := func(s outside.Scope, c Config, m *outside.APIMetrics) *outside.Door {
		return outside.New(s, server, outside.Limits{QPS: c.LimitIPAMAPIQPS, Burst: c.LimitIPAMAPIBurst}).Measured(m)
	}
	return cell.Module(id, title, append([]cell.Cell{
		cell.EnabledBy(cell.When(mode+" is the IPAM mode", []string{"ipam"}, func(c cluster.Config) bool { return c.IPAM == mode })),
		cell.Annotate(cluster.Allocator{Mode: mode}),
		ciliumNodes.Permissions(),
		pendingPods.Permissions(),
		k8s.RBAC(
			k8s.Allow("get,update", v2.CiliumNodeResource.GroupResource()),
			k8s.Allow("update", statusResource),
		),
		cell.Metrics(newMetrics),
		cell.Metrics(outside.NewAPIMetrics(server)),
		cell.ProvidePrivate(newDoor, newProvider, newController),
		cell.Job("write", (*controller).write),
		cell.Job("read", (*controller).readCloud),
		cell.Job("nodes", (*controller).watchNodes, cell.Retry(time.Second, time.Minute)),
	}, cells...)...)
}

var (
	ciliumNodes = stream.Custom[ciliumNode](v2.CiliumNodeResource).OfKind("CiliumNode")
	// pendingPods are selected by the API server: a handful, whatever the size of the cluster.
	pendingPods = stream.Core[pendingPod, corev1.Pod](corev1.SchemeGroupVersion.WithResource("pods")).
			MatchingFields("status.phase=Pending,spec.nodeName!=")
)
