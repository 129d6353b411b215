// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lbipam

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/panics"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/job"
)

// controller passes changes of pools and Services to the allocator and writes its decisions.
type controller struct {
	params
	serviceQueue *reconcile.Queue[slim.Key]
	poolQueue    *reconcile.Queue[string]
	// active is closed when there is a pool. Services are not watched before.
	active     chan struct{}
	activation sync.Once
	objects    *panics.Objects // pools and Services that changed
	changes    sync.Mutex      // held while their changes are handled

	mu           sync.Mutex // guards the fields below; never held during a request
	alloc        *allocator
	unknown      unknown[serviceObject]
	unknownPools unknown[poolObject]
	reported     string // what health says of objects that cannot be decoded
	written      map[slim.Key]written
	hinted       map[slim.Key]hints
	poolsWritten map[string]written
}

type params struct {
	cell.In

	Config   Config
	Shared   cluster.Config
	Pools    stream.Resource[poolObject]
	Services stream.Resource[serviceObject]
	Client   k8s.Client
	Events   *k8s.Events
	Handover leading.Handover
	Deps     reconcile.Deps
	Metrics  *lbMetrics
	Health   health.Reporter
	Log      *slog.Logger
}

func newController(p params) *controller {
	c := &controller{
		params: p, objects: p.Deps.ObjectsOf("observe"), active: make(chan struct{}), alloc: newAllocator(newSettings(p.Config, p.Shared)),
		unknown: newUnknown[serviceObject](), unknownPools: newUnknown[poolObject](),
		written: map[slim.Key]written{}, hinted: map[slim.Key]hints{}, poolsWritten: map[string]written{},
	}
	c.serviceQueue = reconcile.NewQueue(p.Deps, "allocate", c.writeService, reconcile.Workers(writers))
	c.poolQueue = reconcile.NewQueue(p.Deps, "pool", c.writePool)
	return c
}

// writeServices runs the work queue of Services.
func (c *controller) writeServices(ctx context.Context) error { return c.serviceQueue.Run(ctx) }

// writePools runs the work queue of pools.
func (c *controller) writePools(ctx context.Context) error { return c.poolQueue.Run(ctx) }

// watchPools passes each change of a pool to the allocator. It starts with the pools that previous leaders have seen, as
// addresses that no pool covers are taken from Services.
func (c *controller) watchPools(ctx context.Context) error {
	if err := stream.AwaitPredecessor(ctx, c.Pools, c.Handover, poolKind.Resource()); err != nil {
		return err
	}
	store, err := c.Pools.Store(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.unknownPools.store = store
	c.mu.Unlock()
	synced := false
	for batch := range c.Pools.Changes(ctx) {
		for _, ch := range batch.Changes {
			c.recordSeen(ch)
			began := time.Now()
			c.process(poolKind.Trigger(ch.Object), func(a *allocator) { c.handlePool(a, ch) }, func() { c.unknownPools.keys[ch.Key] = true })
			c.Metrics.processed(ch.Kind, "pool", began)
		}
		synced = synced || batch.Synced
		c.update(func(a *allocator) {
			if synced && !a.dormant() {
				c.activation.Do(func() { close(c.active) })
			}
		}, c.Deps.TermTrigger())
	}
	return ctx.Err()
}

// recordSeen has the next leader wait for a pool that this one uses, also if it never writes to it: without it that leader
// would take the addresses of the pool from Services.
func (c *controller) recordSeen(ch stream.Change[poolObject]) {
	if ch.Kind == stream.Upsert {
		c.Handover.RecordSynced(poolKind.Resource(), uint64(ch.Object.ResourceVersion))
	}
}

func (c *controller) handlePool(a *allocator, ch stream.Change[poolObject]) {
	delete(c.unknownPools.keys, ch.Key)
	if ch.Kind == stream.Delete {
		delete(c.poolsWritten, ch.Key.Name)
		a.removePool(ch.Key.Name)
	} else {
		a.upsertPool(ch.Object)
	}
}

// watchServices passes each change of a Service to the allocator, once there is a pool. It starts with the allocations of
// previous leaders.
func (c *controller) watchServices(ctx context.Context) error {
	select {
	case <-c.active:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := stream.AwaitPredecessor(ctx, c.Services, c.Handover, serviceKind.Resource()); err != nil {
		return err
	}
	store, err := c.Services.Store(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.unknown.store = store
	c.mu.Unlock()
	for batch := range c.Services.Changes(ctx) {
		for _, ch := range batch.Changes {
			began := time.Now()
			c.process(serviceKind.Trigger(ch.Object), func(a *allocator) { c.handleService(a, ch) }, func() { c.unknown.keys[ch.Key] = true })
			c.Metrics.processed(ch.Kind, "service", began)
		}
		if batch.Synced {
			c.handleSynced()
		}
	}
	return ctx.Err()
}

func (c *controller) handleService(a *allocator, ch stream.Change[serviceObject]) {
	delete(c.unknown.keys, ch.Key)
	if ch.Kind == stream.Delete {
		delete(c.written, ch.Key)
		delete(c.hinted, ch.Key)
		a.removeService(ch.Key)
	} else {
		a.upsertService(ch.Object)
		c.hint(ch.Key, ch.Object)
	}
}

// handleSynced starts the allocation, as all Services are in the allocator.
func (c *controller) handleSynced() {
	var pools, services, waiting int
	var leftFree map[string]int
	c.update(func(a *allocator) {
		a.markSynced()
		pools, services, waiting = len(a.pools), a.matching(), len(a.waiting.services)
		leftFree = a.leftFree
	}, c.Deps.TermTrigger())
	c.logLeftFree(leftFree)
	c.Log.Info("caches synced, allocating addresses", "pools", pools, "services", services, "unsatisfied", waiting)
}

// maxLeftFree is how many namespaces are named in the log whose excluded Services show more than counts.
const maxLeftFree = 5

// logLeftFree names namespaces whose Services show more addresses than are kept from others.
func (c *controller) logLeftFree(byNamespace map[string]int) {
	for i, namespace := range slices.Sorted(maps.Keys(byNamespace)) {
		if i == maxLeftFree {
			c.Log.Warn("Services of more namespaces show addresses that are not kept from others", "namespaces", len(byNamespace)-i)
			return
		}
		c.Log.Warn("Services that an option or their class excludes show addresses of pools that are not kept from others: too many, or more than a Service may have",
			"namespace", namespace, "addresses", byNamespace[namespace], "most", mostLeft)
	}
}

// recheckInterval is how often objects of which nothing can be decoded are looked at. There is no event when such an object
// is deleted.
const recheckInterval = 5 * time.Second

func (c *controller) recheckUnknown() job.Job {
	return job.Timer(func(context.Context) error {
		c.changes.Lock()
		defer c.changes.Unlock()
		c.objects.RetryDue()
		c.update(func(*allocator) {}, c.Deps.TermTrigger())
		return nil
	}, recheckInterval, job.DelayFirstRun())
}

// process handles the change of an object. One whose handling panicked waits, as one of which nothing can be decoded: nothing is allocated
// that it may have.
func (c *controller) process(trigger k8s.Trigger, f func(*allocator), setAside func()) {
	c.changes.Lock()
	defer c.changes.Unlock()
	if c.objects.Handle(trigger, func() error { c.update(f, trigger); return nil }) != nil {
		_ = c.objects.Run(func() error { c.update(func(*allocator) { setAside() }, trigger); return nil })
	}
}

// update runs f on the allocator, with the current list of objects that cannot be decoded, and enqueues the objects that
// have to be written.
func (c *controller) update(f func(*allocator), trigger k8s.Trigger) {
	services, pools, contested := c.updateAllocator(f)
	for _, key := range slices.SortedFunc(maps.Keys(services), compareKeys) {
		c.serviceQueue.Add(key, trigger)
	}
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		c.poolQueue.Add(name, trigger)
	}
	for _, w := range warningsOf(contested) {
		if w.byOthers {
			c.Events.Normal(w.about, w.reason, w.message)
		} else {
			c.Events.Warning(w.about, w.reason, w.message)
		}
	}
}

func (c *controller) updateAllocator(f func(*allocator)) (services map[slim.Key]bool, pools map[string]bool, contested []contest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer panics.Sharing()
	a := c.alloc
	c.unknownPools.refresh()
	c.unknown.refresh()
	c.setUnknown()
	f(a)
	c.setUnknown()
	services, pools = a.drainDirty()
	contested, a.contested = a.contested, nil
	c.Metrics.update(a, pools)
	c.reportUnknown()
	return services, pools, contested
}
