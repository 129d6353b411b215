// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package agents

import (
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell offers the options and the streams of this package to all modules.
var Cell = cell.Module("agents", "Watches the pods of the agents, and the taints and conditions of their nodes",
	cell.Config(Config{CiliumPodLabels: "k8s-app=cilium", AgentNotReadyTaintKey: "node.cilium.io/agent-not-ready"}),
	cell.EnabledBy(k8s.InUse),
	stream.Provide(Nodes),
	stream.ProvideSelected(Pods, Selected[Pod]),
)
