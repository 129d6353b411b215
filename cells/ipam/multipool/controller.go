// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package multipool

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/domain/cidr"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/panics"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
)

// controller passes changes of CiliumNodes and CiliumPodIPPools to the allocator and writes its decisions.
type controller struct {
	params
	undecodable func() []slim.Key // CiliumNodes of which nothing can be decoded

	mu       sync.Mutex // guards the fields below; never held during a request
	alloc    *allocator
	reported reported
}

type params struct {
	cell.In

	Shared   cluster.Config
	Release  release.Configured
	Creator  *creator
	Migrator *migrator
	Nodes    stream.Resource[ciliumio.Node]
	Client   k8s.Client
	Events   *k8s.Events
	Metrics  *poolMetrics
	Health   health.Reporter
	Log      *slog.Logger
}

func newController(p params) *controller {
	a := newAllocator(p.Shared)
	r := p.Release.Release
	a.byAddress, a.namesOrphans, a.prefixesErrors = release.CIDRsByAddress.In(r), release.OrphansNamed.In(r), release.PoolErrorsPrefixed.In(r)
	return &controller{params: p, alloc: a}
}

// Open is called before anything is watched. It waits for the pools that are created, then for the migration.
func (c *controller) Open(ctx context.Context) error {
	c.Creator.await(ctx)
	store, err := c.Nodes.Store(ctx)
	if err != nil {
		return err
	}
	c.undecodable = func() []slim.Key { return store.Unreadable() }
	failures := c.Migrator.migrate(ctx, store)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alloc.unmigrated = failures
	return ctx.Err()
}

// nodeChanged returns the CiliumNodes that a change of one concerns.
func (c *controller) nodeChanged(ch stream.Change[ciliumio.Node]) []slim.Key {
	return c.update(func(a *allocator) []string {
		if ch.Kind == stream.Delete {
			return a.remove(ch.Key.Name)
		}
		return a.upsert(newObserved(ch.Object))
	})
}

// nodeSetAside takes the place of nodeChanged for a node whose handling panicked: it may have what it lists, and gets nothing.
func (c *controller) nodeSetAside(ch stream.Change[ciliumio.Node], why error) []slim.Key {
	return c.update(func(a *allocator) []string { return a.upsert(newSetAside(ch.Object, why)) })
}

// poolChanged returns the CiliumNodes that a change of a CiliumPodIPPool concerns.
func (c *controller) poolChanged(ch stream.Change[podIPPool]) []slim.Key {
	return c.update(func(a *allocator) []string {
		if ch.Kind == stream.Delete {
			return a.removePool(ch.Key.Name)
		}
		return a.setPool(newObservedPool(ch.Object))
	})
}

// Synced starts the allocation, as all pools and nodes are in the allocator.
func (c *controller) Synced(context.Context) []slim.Key {
	keys := c.update((*allocator).markSynced)
	c.mu.Lock()
	defer c.mu.Unlock()
	if names := c.alloc.showing(); len(names) > 0 {
		c.Log.Warn("CiliumNodes have pod CIDRs of another IPAM mode, which are not allocated to any node", "nodes", len(names), "first", names[0])
	}
	c.Log.Info("caches synced, allocating CIDRs of pools", "nodes", len(c.alloc.nodes), "pools", len(c.alloc.pools), "nodesToWrite", len(keys))
	return keys
}

// update runs f on the allocator, with the current list of undecodable nodes. It returns the keys of the nodes that f
// returns.
func (c *controller) update(f func(*allocator) []string) (keys []slim.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alloc.current = k8s.Trigger{}
	defer panics.SharingOf(&c.alloc.current)
	c.alloc.claims.setUndecoded(keyNames(c.undecodable()))
	for _, name := range f(c.alloc) {
		keys = append(keys, slim.Key{Name: name})
	}
	c.Metrics.update(c.alloc)
	c.report()
	return keys
}

// undecodedInterval is how often nodes are retried that wait for undecodable ones: no change tells that these are gone.
const undecodedInterval = 5 * time.Second

// notWritten is why a reconcile wrote nothing.
const notWritten = "none: the CiliumNode is up to date, or is being deleted"

// Reconcile writes what is desired of a node.
func (c *controller) Reconcile(ctx context.Context, key slim.Key) (reconcile.Result, error) {
	w, ok := c.pendingWrite(key.Name)
	if !ok {
		return reconcile.Result{Reason: notWritten}, nil
	}
	if err := c.write(ctx, w); err != nil {
		return reconcile.Result{}, err
	}
	if w.waits {
		return reconcile.Result{RequeueAfter: undecodedInterval}, nil
	}
	return reconcile.Result{}, nil
}

const (
	requestedPath = "spec.ipam.pools.requested"
	allocatedPath = "spec.ipam.pools.allocated"
	errorPath     = "status.ipam.operator-status.error"
)

func newObserved(n *ciliumio.Node) observed {
	o := observed{
		Name: n.Name, UID: n.UID.String(), Revision: uint64(n.ResourceVersion), Created: n.CreationTimestamp.Time(), Deleting: !n.DeletionTimestamp.IsZero() || n.IgnoresIPAM(),
		Requested: n.Spec.IPAM.Pools.Requested, Allocated: n.Spec.IPAM.Pools.Allocated, IsCut: n.Spec.IPAM.Pools.IsCut, Error: n.Status.IPAM.OperatorStatus.Error,
		Elsewhere:      append(n.PodBlocks(), n.Status.IPAM.PodCIDRs...),
		ErrorUndecoded: n.CannotDecode(errorPath),
	}
	if n.CannotDecode(requestedPath) {
		o.RequestUndecoded = n.DecodeError().Error()
	}
	if n.CannotDecode(allocatedPath) {
		o.Undecoded = n.DecodeError().Error()
		o.Found, o.Blind = n.UndecodedPoolBlocks()
	}
	return o
}

// newSetAside is a node that is not handled, but may have the CIDRs that it lists.
func newSetAside(n *ciliumio.Node, why error) observed {
	o := observed{
		Name: n.Name, UID: n.UID.String(), Revision: uint64(n.ResourceVersion), Created: n.CreationTimestamp.Time(),
		Undecoded: why.Error(), RequestUndecoded: why.Error(), ErrorUndecoded: true,
	}
	for _, of := range n.Spec.IPAM.Pools.Allocated {
		for _, text := range of.CIDRs {
			o.Found = append(o.Found, cidr.Find(string(text))...)
		}
	}
	return o
}

func newObservedPool(p *podIPPool) observedPool {
	o := observedPool{Name: p.Name, UID: p.UID.String(), Created: p.CreationTimestamp.Time(), Families: [2]*familySpec{p.Spec.IPv4, p.Spec.IPv6}, Ends: ends{p.Spec.AllowFirstIP, p.Spec.AllowLastIP}}
	if p.CannotDecode("spec") {
		o.Undecoded = p.DecodeError().Error()
	}
	return o
}

func keyNames(keys []slim.Key) (names []string) {
	for _, key := range keys {
		names = append(names, key.Name)
	}
	slices.Sort(names)
	return names
}
