// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodegc

import (
	"time"

	corev1 "k8s.io/api/core/v1"

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
	cell.EnabledBy(cell.When("CiliumNodes are looked at", []string{"nodes-gc-interval", "enable-ciliumnode-crd"}, func(c Config, shared cluster.Config) bool {
		return c.NodesGCInterval != 0 && shared.NodeCRD()
	})),

	stream.Provide(nodes),
	sweep.Controller[*controller](newController, ciliumio.Nodes, sweep.Resets(nodes, (*controller).nodeAppeared)),
	k8s.OptionalRBAC(k8s.Allow("get", nodes.Resource().GroupResource())), // else one is listed by its name
)

// Config is the interval of garbage collections.
type Config struct {
	NodesGCInterval time.Duration `flag:"nodes-gc-interval" usage:"Interval between garbage collections of CiliumNodes whose Node does not exist, and the minimum age of that state before a deletion. 0 disables them" min:"100ms" zero:"deletes none"`
}

var nodes = stream.Core[node, corev1.Node](corev1.SchemeGroupVersion.WithResource("nodes"))

// node is a Node, of which only the existence counts: slim.Node takes six times the memory.
type node struct {
	slim.Meta `json:"metadata"`
}
