// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package taints

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/agents"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell keeps the taint and the condition of nodes as the state of their agents wants them.
var Cell = cell.Module("nodes.taints", "Removes the taint of nodes whose agent is ready, and sets their condition",
	cell.Config(Config{RemoveCiliumNodeTaints: true, SetCiliumIsUpCondition: true, TaintSyncWorkers: 10}),
	cell.EnabledBy(cell.When("taints are removed or conditions set", []string{"remove-cilium-node-taints", "set-cilium-is-up-condition"}, Config.enabled)),
	cell.Metrics(newMetrics),
	reconcile.Controller(newController,
		reconcile.Watches(agents.Nodes, (*controller).nodeChanged),
		reconcile.Watches(agents.Pods, (*controller).podChanged),
	),
	cell.Module("taint", "Lets the duty change the taints of nodes",
		cell.EnabledBy(cell.When("taints are removed or set", []string{"remove-cilium-node-taints", "set-cilium-node-taints"}, Config.taints)),
		k8s.RBAC(k8s.Allow("patch", nodes)),
	),
	cell.Module("condition", "Lets the duty set the condition of nodes",
		cell.EnabledBy(cell.When("conditions are set", []string{"set-cilium-is-up-condition"}, func(c Config) bool { return c.SetCiliumIsUpCondition })),
		k8s.RBAC(k8s.Allow("patch", nodeStatus)),
	),
)

var (
	nodes      = schema.GroupResource{Resource: "nodes"}
	nodeStatus = schema.GroupResource{Resource: "nodes/status"}
)
