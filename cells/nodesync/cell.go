// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodesync

import (
	"time"

	"github.com/skep-operator/skep/resources/agents"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell keeps the keys of nodes in etcd.
var Cell = module(timing{interval: time.Minute, grace: 5 * time.Second, agentGrace: time.Minute})

func module(t timing) cell.Cell {
	return cell.Module("nodesync", "Deletes the keys of gone nodes from etcd, and writes those that agents before 1.19 need",
		cell.EnabledBy(kvstore.InUse),
		cell.EnabledBy(cell.When("nodes are synchronized", []string{"synchronize-k8s-nodes"}, func(c kvstore.Config) bool { return c.SynchronizeK8sNodes })),
		ciliumNodes.Permissions(),
		agents.Pods.Permissions(),
		k8s.OptionalRBAC(k8s.Allow("get", ciliumNodes.Resource().GroupResource())), // else one is listed by its name
		k8s.EventRBAC(),

		cell.Metrics(newMetrics),
		stream.Provide(ciliumNodes),
		cell.ProvidePrivate(func() timing { return t }, newController),
		cell.Job("watch-nodes", (*controller).watchNodes),
		cell.Job("watch-agents", (*controller).watchAgents),
		cell.Job("watch-keys", (*controller).watchKeys),
		cell.Job("write", (*controller).write),
		cell.Job("collect", (*controller).collect),
	)
}
