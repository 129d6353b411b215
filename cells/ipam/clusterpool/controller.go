// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterpool

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/skep-operator/skep/resources/agents"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/domain/cidr"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/panics"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/job"
)

// controller passes changes of CiliumNodes to the allocator and writes its decisions.
type controller struct {
	params
	queue   *reconcile.Queue[string]
	fleet   *fleet
	objects *panics.Objects // CiliumNodes that changed
	changes sync.Mutex      // held while changes are handled

	mu       sync.Mutex // guards Alloc and the fields below; never held during a request
	store    *stream.Store[ciliumio.Node]
	reported reported
	unstored map[string]bool // nodes whose CIDRs are allocated and could not be written
}

type params struct {
	cell.In

	Alloc    *allocator
	Nodes    stream.Resource[ciliumio.Node]
	Agents   stream.Resource[agents.Pod]
	Release  release.Configured
	Client   k8s.Client
	Events   *k8s.Events
	Handover leading.Handover
	Deps     reconcile.Deps
	Metrics  *poolMetrics
	Sync     *syncMetrics
	Health   health.Reporter
	Log      *slog.Logger
}

func newController(p params) *controller {
	c := &controller{params: p, objects: p.Deps.ObjectsOf("observe"), unstored: map[string]bool{}, fleet: newFleet(p.Release)}
	p.Alloc.losesDuplicates = c.fleet.losesDuplicates
	c.queue = reconcile.NewQueue(p.Deps, "allocate", c.writeNode, reconcile.Workers(writers), reconcile.CountedAs((*reconcile.DutyMetrics)(p.Sync)))
	return c
}

// write runs the work queue.
func (c *controller) write(ctx context.Context) error { return c.queue.Run(ctx) }

// watchNodes passes each change of a CiliumNode to the allocator and enqueues the nodes that it affects. It starts with
// the allocations of previous leaders.
func (c *controller) watchNodes(ctx context.Context) error {
	if err := stream.AwaitPredecessor(ctx, c.Nodes, c.Handover, v2.CiliumNodeResource); err != nil {
		return err
	}
	store, err := c.Nodes.Store(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.store = store
	c.mu.Unlock()
	for batch := range c.Nodes.Changes(ctx, stream.NewestFirst()) {
		c.handleBatch(batch)
	}
	return ctx.Err()
}

// retryInterval is how often pending nodes are retried, and nodes whose handling panicked. There is no event when CiliumNodes that block them can be
// decoded again.
const retryInterval = 5 * time.Second

func (c *controller) retry() job.Job {
	return job.Timer(func(context.Context) error {
		c.changes.Lock()
		defer c.changes.Unlock()
		c.objects.RetryDue()
		return c.objects.Run(func() error { c.enqueue(c.updateAllocator((*allocator).retryPending)); return nil })
	}, retryInterval, job.DelayFirstRun())
}

func (c *controller) handleBatch(batch stream.Batch[ciliumio.Node]) {
	c.changes.Lock()
	defer c.changes.Unlock()
	for _, ch := range batch.Changes {
		c.process(ch)
	}
	if batch.Synced {
		_ = c.objects.Run(func() error { c.enqueue(c.handleSynced()); return nil })
	}
}

// enqueue adds nodes to the work queue. Without triggers, each node is its own.
func (c *controller) enqueue(names []string, triggers ...k8s.Trigger) {
	for _, n := range names {
		if len(triggers) == 0 {
			c.queue.Add(n, k8s.Trigger{Kind: ciliumio.Nodes.Name(), Name: n})
		} else {
			c.queue.Add(n, triggers...)
		}
	}
}

// process handles the change of a node, and enqueues the nodes to write. A node whose handling panicked waits, as one that may have what
// it lists.
func (c *controller) process(ch stream.Change[ciliumio.Node]) {
	trigger := ciliumio.Nodes.Trigger(ch.Object)
	err := c.objects.Handle(trigger, func() error {
		c.enqueue(c.handleChange(ch), trigger)
		return nil
	})
	if err != nil && ch.Kind == stream.Upsert {
		_ = c.objects.Run(func() error {
			c.enqueue(c.updateAllocator(func(a *allocator) []string { return a.upsert(newSetAside(ch.Object, err)) }), trigger)
			return nil
		})
	}
}

// handleChange returns the nodes to write after a change of one.
func (c *controller) handleChange(ch stream.Change[ciliumio.Node]) []string {
	return c.updateAllocator(func(a *allocator) []string {
		if ch.Kind == stream.Delete {
			delete(c.unstored, ch.Key.Name)
			return a.remove(ch.Key.Name)
		}
		return a.upsert(newObserved(ch.Object))
	})
}

// updateAllocator runs f on the allocator, with the current list of undecodable nodes. It returns those of the nodes
// returned by f that have to be written.
func (c *controller) updateAllocator(f func(*allocator) []string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Alloc.current = k8s.Trigger{}
	defer panics.SharingOf(&c.Alloc.current)
	if c.store != nil {
		c.Alloc.claims.setUndecoded(keyNames(c.store.Unreadable()))
	}
	names := f(c.Alloc)
	c.Metrics.update(c.Alloc, len(c.unstored))
	c.reportProblems()
	return slices.DeleteFunc(names, c.Alloc.upToDate)
}

// handleSynced starts the allocation, as all nodes are in the allocator. It returns the nodes to write.
func (c *controller) handleSynced() []string {
	var total, outside, duplicates int
	names := c.updateAllocator(func(a *allocator) []string {
		names := a.markSynced()
		total, outside, duplicates = len(a.nodes), a.countRefused(notConfigured), a.countRefused(alreadyAllocated, poolFull)
		return names
	})
	c.Log.Info("caches synced, allocating pod CIDRs", "nodes", total, "nodesToWrite", len(names))
	if outside > 0 {
		c.Log.Warn("CiliumNodes keep pod CIDRs outside the cluster CIDRs, see status.ipam.operator-status of each", "nodes", outside)
	}
	if duplicates > 0 {
		c.Log.Warn("CiliumNodes with a pod CIDR already allocated to an older node, see status.ipam.operator-status of each", "nodes", duplicates)
	}
	return names
}

const (
	podCIDRsPath = "spec.ipam.podCIDRs"
	errorPath    = "status.ipam.operator-status.error"
)

func newObserved(n *ciliumio.Node) observed {
	o := observed{
		Name: n.Name, UID: n.UID.String(), Created: n.CreationTimestamp.Time(), Deleting: !n.DeletionTimestamp.IsZero() || n.IgnoresIPAM(),
		PodCIDRs: n.Spec.IPAM.PodCIDRs, Error: n.Status.IPAM.OperatorStatus.Error,
		Elsewhere:      append(n.PoolBlocks(), n.Status.IPAM.PodCIDRs...),
		ErrorUndecoded: n.CannotDecode(errorPath),
	}
	if n.CannotDecode(podCIDRsPath) {
		o.Undecoded, o.Found = n.DecodeError().Error(), cidr.FindInJSON(n.RawField(podCIDRsPath))
	}
	return o
}

// newSetAside is a node that is not handled, but may have the CIDRs that it lists.
func newSetAside(n *ciliumio.Node, why error) observed {
	o := observed{Name: n.Name, UID: n.UID.String(), Created: n.CreationTimestamp.Time(), Undecoded: why.Error(), SetAside: true}
	for _, text := range n.Spec.IPAM.PodCIDRs {
		o.Found = append(o.Found, cidr.Find(text)...)
	}
	return o
}

func keyNames(keys []slim.Key) (names []string) {
	for _, key := range keys {
		names = append(names, key.Name)
	}
	return names
}
