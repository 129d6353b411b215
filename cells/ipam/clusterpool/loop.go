// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterpool

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/job"
)

// syncer feeds the allocator with CiliumNodes and writes what it decides.
type syncer struct {
	params
	loop *reconcile.Loop[string]

	mu sync.Mutex // guards Alloc; never held during a request
}

type params struct {
	cell.In

	Alloc    *allocator
	Nodes    stream.Resource[ciliumio.Node]
	Client   k8s.Client
	Events   *k8s.Events
	Handover k8s.Handover
	Scope    reconcile.Scope
	Metrics  *poolMetrics
	Log      *slog.Logger
}

func newSyncer(p params) *syncer {
	s := &syncer{params: p}
	s.loop = reconcile.New(p.Scope, "allocate", s.writeNode, reconcile.Workers(writers))
	return s
}

func (s *syncer) watch() job.Job { return job.OneShot(s.follow, job.Retry(time.Second, time.Minute)) }

// follow hands every change of a node to the allocator, and has those nodes
// written that it changes its mind about. What leaders before this one gave out
// is seen first.
func (s *syncer) follow(ctx context.Context) error {
	if err := stream.CatchUp(ctx, s.Nodes, s.Handover, v2.CiliumNodeResource); err != nil {
		return err
	}
	for e := range s.Nodes.Events(ctx, stream.Named("ipam.clusterpool"), stream.ChangesFirst()) {
		if e.Kind == stream.Sync {
			for _, n := range s.begin() {
				s.loop.Add(n, k8s.Trigger{Kind: "CiliumNode", Name: n})
			}
		} else {
			trigger := k8s.Trigger{Kind: "CiliumNode", Name: e.Key.Name, ResourceVersion: e.Object.ResourceVersion.String()}
			for _, n := range s.take(e) {
				s.loop.Add(n, trigger)
			}
		}
		e.Done(nil)
	}
	return ctx.Err()
}

// take notes a change. It returns the nodes to write.
func (s *syncer) take(e stream.Event[ciliumio.Node]) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	if e.Kind == stream.Delete {
		names = s.Alloc.remove(e.Key.Name)
	} else {
		names = s.Alloc.upsert(observe(e.Object))
	}
	s.Metrics.update(s.Alloc)
	return slices.DeleteFunc(names, s.Alloc.content)
}

// begin gives out blocks for the first time: all nodes have been seen. It returns
// the nodes to write.
func (s *syncer) begin() []string {
	s.mu.Lock()
	names := slices.DeleteFunc(s.Alloc.begin(), s.Alloc.content)
	total, outside, duplicates := len(s.Alloc.nodes), s.Alloc.outside(), s.Alloc.duplicates()
	s.Metrics.update(s.Alloc)
	s.mu.Unlock()
	s.Log.Info("all nodes are known, giving out pod CIDRs", "nodes", total, "to write", len(names))
	if outside > 0 {
		s.Log.Warn("nodes have pod CIDRs outside the configured ones; they keep them, and the operator says so on each", "nodes", outside)
	}
	if duplicates > 0 {
		s.Log.Warn("nodes have pod CIDRs that belong to older nodes; give each another, or delete it: the operator says so on each", "nodes", duplicates)
	}
	return names
}

func observe(n *ciliumio.Node) observed {
	return observed{
		Name: n.Name, UID: n.UID.String(), Created: n.CreationTimestamp.Time(), Deleting: !n.DeletionTimestamp.IsZero(),
		PodCIDRs: n.Spec.IPAM.PodCIDRs, Error: n.Status.IPAM.OperatorStatus.Error,
	}
}
