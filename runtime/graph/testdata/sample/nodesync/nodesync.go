// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package nodesync keeps node objects in step.
package nodesync

import (
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/idle"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/ipam"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/k8s"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/stream"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

type params struct {
	cell.In
	Client *k8s.Client
	Nodes  *stream.Resource[stream.CiliumNode]
	IPAM   ipam.Allocator `optional:"true"`
}

func run(params) job.Job                                { return idle.Job() }
func watch(*stream.Resource[stream.Pod]) lifecycle.Hook { return idle.Hook() }

// Cell is the module.
var Cell = cell.Module("nodesync", "Keeps CiliumNodes in step with nodes",
	cell.StartAfter("identity", "agents read a node only when its identity is there"),
	cell.Hook("watch", watch),
	cell.Job("run", run),
)
