// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodegc

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/resources/sweep"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell deletes orphaned CiliumNodes.
var Cell = cell.Module("nodegc", "Deletes CiliumNodes whose Node is gone",
	cell.Config(Config{NodesGCInterval: 5 * time.Minute}),
	cell.EnabledBy(cell.When("CiliumNodes are looked at", []string{"nodes-gc-interval"}, func(c Config) bool { return c.NodesGCInterval != 0 })),
	cell.Module("periodic", "Looks again and again for CiliumNodes whose Node is gone",
		cell.EnabledBy(cell.When("agents make CiliumNodes", nodeFlags, cluster.Config.NodeCRD)),
		stream.Provide(nodes),
		sweep.Controller[*controller](newController, ciliumio.Nodes, sweep.Resets(nodes, (*controller).nodeAppeared)),
		k8s.OptionalRBAC(k8s.Allow("get", nodes.Resource().GroupResource())), // else one is listed by its name
	),
	cell.Module("once", "Deletes all CiliumNodes, once, since agents make none",
		cell.EnabledBy(cell.When("agents make no CiliumNodes", nodeFlags, func(c cluster.Config) bool { return !c.NodeCRD() })),
		k8s.RBAC(
			k8s.Allow("list,delete", v2.CiliumNodeResource.GroupResource()),
			k8s.Allow("get", definitions.GroupResource()),
		),
		cell.Job("clean", newOnce),
	),
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

var nodeFlags = []string{"enable-ciliumnode-crd", "ipam", "identity-allocation-mode", "kvstore"}

// Config is the interval of garbage collections.
type Config struct {
	NodesGCInterval time.Duration `flag:"nodes-gc-interval" usage:"Interval between garbage collections of CiliumNodes whose Node does not exist, and the minimum age of that state before a deletion. 0 disables them" min:"100ms" zero:"deletes none"`
}

var nodes = stream.Core[node, corev1.Node](corev1.SchemeGroupVersion.WithResource("nodes"))

// node is a Node, of which only the existence counts: slim.Node takes six times the memory.
type node struct {
	slim.Meta `json:"metadata"`
}
