// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterpool

import (
	"context"

	"github.com/skep-operator/skep/resources/agents"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// fleet is what is known of the agents of nodes.
type fleet struct {
	*agents.Fleet
	configured release.Configured
	synced     bool // before that, an agent may run that is not known
}

func newFleet(configured release.Configured) *fleet {
	return &fleet{Fleet: agents.NewFleet(configured), configured: configured}
}

// losesDuplicates reports whether all agents of a node expect that a duplicate is taken out of its podCIDRs.
func (f *fleet) losesDuplicates(name string) bool {
	on, known := f.On(slim.MakeString(name))
	if !known {
		on = release.SetOf(f.configured.Release)
	}
	return f.synced && release.InAll(release.DuplicatesTakenOut, on)
}

// watchAgents passes the releases of agents to the allocator, and enqueues nodes with a duplicate, of which they decide.
func (c *controller) watchAgents(ctx context.Context) error {
	for batch := range c.Agents.Changes(ctx, stream.BatchSize(64)) {
		c.enqueue(c.updateAllocator(func(a *allocator) []string {
			for _, ch := range batch.Changes {
				c.fleet.Apply(ch)
			}
			c.fleet.synced = c.fleet.synced || batch.Synced
			return a.refusedDuplicates()
		}))
	}
	return ctx.Err()
}
