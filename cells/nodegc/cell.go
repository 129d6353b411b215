// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodegc

import (
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell deletes CiliumNodes that are left over.
var Cell = cell.Module("nodegc", "Deletes CiliumNodes whose Node is gone",
	cell.Config(Config{NodesGCInterval: 5 * time.Minute}),
	cell.EnabledBy(cell.When("CiliumNodes are looked at", []string{intervalFlag}, func(c Config) bool { return c.NodesGCInterval != 0 })),
	k8s.RBAC(
		k8s.Allow("list,watch,delete", v2.CiliumNodeResource.GroupResource()),
		k8s.Allow("list,watch", nodes.GroupResource()),
	),
	k8s.EventRBAC(),

	stream.Provide(stream.Core[node, corev1.Node](nodes)),
	cell.ProvidePrivate(newCollector),
	cell.Job("sweep", (*collector).sweepJob),
	cell.Job("watch", (*collector).watchJob),
)

var nodes = corev1.SchemeGroupVersion.WithResource("nodes")

// node is a Node, of which nothing counts but that it is there: the labels and the
// state that slim.Node has are six times as much.
type node struct {
	slim.Meta `json:"metadata"`
}

const intervalFlag = "nodes-gc-interval"

// Config says how often CiliumNodes are looked at.
type Config struct {
	NodesGCInterval time.Duration
}

// Flags implements cell.Flagger.
func (c Config) Flags(fs *pflag.FlagSet) {
	fs.Duration(intervalFlag, c.NodesGCInterval, "Time between two looks for CiliumNodes whose Node is gone, and the time that it is gone before they are deleted. 0 deletes none")
}

// Validate implements the check of config structs.
func (c Config) Validate() error {
	if c.NodesGCInterval < 0 {
		return cell.Invalid(intervalFlag, "must not be negative")
	}
	return nil
}
