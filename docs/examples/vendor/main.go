// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Vendor is the operator of Acme: ours, with three changes.
package main

import (
	"context"
	"os"

	"github.com/skep-operator/skep/cells"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

var acme = cells.Operator.
	Without("crds").                          // definitions come with Acme's chart
	Replace("leader", solo).                  // one replica needs no lease
	WithInTerm("leader", inventory, registry) // duties of Acme's

// version is set by the linker.
var version = "devel"

func main() { os.Exit(cells.Main(acme, version)) }

// solo enters the term when the process starts, and leaves it when it stops.
var solo = cell.Module("acme.solo", "Leads as long as it lives, for there is one replica",
	cell.Invoke(func(l leading.Session) error { return l.Open(leading.Unfenced(), &leading.WriteProgress{}) }),
	cell.Hook("lead", func(p struct {
		cell.In
		Term lifecycle.Term `name:"leader"`
	}) lifecycle.Hook {
		return lifecycle.Funcs{OnStart: p.Term.Enter, OnStop: p.Term.Leave}
	}),
)

// Node is what Acme reads of a CiliumNode, and all that its stream keeps.
type Node struct {
	slim.Meta `json:"metadata"`
	Spec      struct {
		Machine slim.String `json:"instance-id"`
	} `json:"spec"`
}

var inventory = cell.Module("acme.inventory", "Says which nodes are no machines of Acme",
	k8s.RBAC(k8s.Allow("list,watch", v2.CiliumNodeResource.GroupResource())),
	stream.Provide(stream.Custom[Node](v2.CiliumNodeResource)),
	cell.Job("look", func(nodes stream.Resource[Node], h health.Reporter, ctx context.Context) error {
		for batch := range nodes.Changes(ctx) {
			for _, change := range batch.Changes {
				part := h.Child(change.Key.Name)
				if part.Remove(); change.Kind == stream.Upsert && change.Object.Spec.Machine.String() == "" {
					part.Degraded("is no machine of Acme", nil)
				}
			}
		}
		return ctx.Err()
	}),
)
