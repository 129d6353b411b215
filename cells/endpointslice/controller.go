// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/skep-operator/skep/resources/api/v2alpha1"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/panics"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/job"
)

// writers is how many slices of one namespace are written at once: enough for the rate limit where a response takes 160 ms. More of them
// do not make a slower API server faster (docs/performance.md). One more is for the other namespaces.
const writers = 8

// sliceKey is the key of a slice in the queues. The namespace of its endpoints is a part of it, so that it is the same until the key is done.
type sliceKey struct{ namespace, name string }

// String returns the name of the slice.
func (k sliceKey) String() string { return k.name }

// source is where endpoints come from.
type source interface {
	// watch calls handle with each endpoint that may have changed, and synced once when the initial state is complete.
	// It ends with ctx.
	watch(ctx context.Context, handle func(slim.Key, k8s.Trigger), synced func()) error
	// content is the desired entry of an endpoint in a slice, false for none. last is the identity that it had last, for
	// a source that does not know it now.
	content(key slim.Key, last int64) (v2alpha1.CoreCiliumEndpoint, bool)
	// undecodable reports whether there is, or may be, an endpoint whose desired entry cannot be decoded.
	undecodable(key slim.Key) bool
	// awaitFresh returns when the source has all endpoints that existed at the time of the call.
	awaitFresh(ctx context.Context) error
}

// controller passes endpoints and slices to the planner and executes its writes.
type controller struct {
	params
	fast     *reconcile.Queue[sliceKey] // slices of Namespaces with priority
	standard *reconcile.Queue[sliceKey]
	limits   limits
	limiter  *rate.Limiter
	turns    *turns
	busy     busy

	slicesSynced    onceSignal
	endpointsSynced onceSignal
	wake            chan struct{}
	objects         *panics.Objects // endpoints and slices that changed
	changes         sync.Mutex      // held while their changes are handled

	mu       sync.Mutex // guards the fields below; never held during a request
	planner  *planner
	batch    *batch
	priority map[string]bool      // Namespaces
	since    map[string]time.Time // by slice: the first change that is not written
}

type params struct {
	cell.In

	Config     Config
	Source     source
	Server     server
	Slices     stream.Resource[ciliumio.EndpointSlice]
	Nodes      stream.Resource[ciliumio.Node]
	Cluster    cluster.Config
	Namespaces stream.Resource[slim.Namespace]
	Handover   leading.Handover
	Deps       reconcile.Deps
	Metrics    *sliceMetrics
	Log        *slog.Logger
}

func newController(p params) (*controller, error) {
	l, err := p.Config.limits()
	if err != nil {
		return nil, err
	}
	c := &controller{
		params: p, limits: l, limiter: rate.NewLimiter(l.at(0)),
		slicesSynced: newOnceSignal(), endpointsSynced: newOnceSignal(), wake: make(chan struct{}, 1),
		planner: newPlanner(p.Config.CESMaxCiliumEndpointsPerCES, p.Config.byIdentity(), randomName), batch: newBatch(),
		since: map[string]time.Time{}, objects: p.Deps.ObjectsOf("observe"),
	}
	c.planner.undecodable = p.Source.undecodable
	c.turns, c.busy.names, c.priority = newTurns(c.limiter), map[string]chan struct{}{}, map[string]bool{}
	c.standard, c.fast = c.newQueue("gather", standard), c.newQueue("gather first", fast)
	return c, nil
}

func (c *controller) newQueue(rule, queue string) *reconcile.Queue[sliceKey] {
	do := func(ctx context.Context, key sliceKey) error { return c.reconcile(ctx, key, queue) }
	namespace := func(key sliceKey) string { return key.namespace }
	return reconcile.NewQueue(c.Deps, rule, do, reconcile.Workers(writers+1), reconcile.NamespaceOf(namespace),
		reconcile.Backoff(100*time.Millisecond, 30*time.Second))
}

// write runs a work queue, writeFirst that of Namespaces with priority.
func (c *controller) write(ctx context.Context) error      { return c.standard.Run(ctx) }
func (c *controller) writeFirst(ctx context.Context) error { return c.fast.Run(ctx) }

// giveTurns gives the tokens of the rate limit to both.
func (c *controller) giveTurns(ctx context.Context) error { return c.turns.run(ctx) }

// onceSignal is a channel that is closed once.
type onceSignal struct {
	done chan struct{}
	fire func()
}

func newOnceSignal() onceSignal {
	done := make(chan struct{})
	return onceSignal{done, sync.OnceFunc(func() { close(done) })}
}

// watchSlices passes slices to the planner. It starts with the writes of previous leaders.
func (c *controller) watchSlices(ctx context.Context) error {
	if err := stream.AwaitPredecessor(ctx, c.Slices, c.Handover, resource); err != nil {
		return err
	}
	for batch := range c.Slices.Changes(ctx) {
		for _, ch := range batch.Changes {
			c.handleSlice(ch)
		}
		if batch.Synced {
			c.slicesSynced.fire()
		}
	}
	return ctx.Err()
}

// handleSlice passes a slice to the planner. One whose handling panicked waits, as one that cannot be decoded.
func (c *controller) handleSlice(ch stream.Change[ciliumio.EndpointSlice]) {
	c.process(ciliumio.EndpointSlices.Trigger(ch.Object), func() { c.observeSlice(ch) }, func() { c.planner.markUndecodable(ch.Key.Name) })
}

// process handles the change of an object, or the other function one whose handling panicked.
func (c *controller) process(trigger k8s.Trigger, do, setAside func()) {
	c.changes.Lock()
	defer c.changes.Unlock()
	if c.objects.Handle(trigger, func() error { do(); return nil }) == nil {
		return
	}
	_ = c.objects.Run(func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		defer panics.Sharing()
		setAside()
		c.enqueueDirty(trigger)
		return nil
	})
}

func (c *controller) observeSlice(ch stream.Change[ciliumio.EndpointSlice]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer panics.Sharing()
	name := ch.Key.Name
	switch {
	case ch.Kind == stream.Delete:
		c.planner.recordDeleted(name, ch.Object.UID)
	case ch.Object.CannotDecode("namespace", "endpoints"):
		c.planner.markUndecodable(name)
	default:
		now := storedOf(ch.Object)
		if now.terminating && !c.planner.isTerminating(name) {
			c.Log.Info("waiting for finalizers", "slice", name)
		}
		c.planner.observe(name, now)
	}
	c.enqueueDirty(ciliumio.EndpointSlices.Trigger(ch.Object))
}

// auditInterval is how often the store is checked for missing slices.
const auditInterval = 5 * time.Second

func (c *controller) audit() job.Job {
	return job.Timer(c.auditOnce, auditInterval, job.DelayFirstRun())
}

// auditOnce recreates slices that are not in the store any more, and retries undecodable endpoints. It makes no request.
func (c *controller) auditOnce(ctx context.Context) error {
	c.retryObjects()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	store, err := c.Slices.Store(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.planner.detectDeleted(func(name string, asOf slim.Revision) bool {
		key := slim.Key{Name: name}
		_, exists := store.Get(key)
		return !exists && !store.Hides(key) && store.Revision() >= asOf
	})
	c.enqueueDirty(k8s.Trigger{Kind: ciliumio.EndpointSlices.Name()})
	for key := range c.planner.frozen {
		c.updateEndpoint(key)
	}
	c.enqueueDirty(k8s.Trigger{Kind: ciliumio.Endpoints.Name()})
	return nil
}

func (c *controller) retryObjects() {
	c.changes.Lock()
	defer c.changes.Unlock()
	c.objects.RetryDue()
}

func (c *controller) watchEndpoints(ctx context.Context) error {
	return c.Source.watch(ctx, c.handleEndpoint, c.endpointsSynced.fire)
}

// handleEndpoint passes the current state of an endpoint to the planner. One whose handling panicked waits, as one that cannot be decoded.
func (c *controller) handleEndpoint(key slim.Key, trigger k8s.Trigger) {
	c.process(trigger, func() { c.observeEndpoint(key, trigger) }, func() { c.planner.freeze(key) })
}

func (c *controller) observeEndpoint(key slim.Key, trigger k8s.Trigger) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer panics.Sharing()
	c.updateEndpoint(key)
	c.enqueueDirty(trigger)
}

// updateEndpoint passes the current state of an endpoint to the planner. The caller has the lock.
func (c *controller) updateEndpoint(key slim.Key) {
	switch e, state := c.planner.desired(key, c.Source.content); state {
	case undecoded:
		c.planner.freeze(key)
	case decoded:
		c.planner.upsert(key, ciliumio.SliceEndpointOf(&e), size(&e))
	default:
		c.planner.remove(key)
	}
}

// bootstrap assigns endpoints to slices once both caches are synced. Removals from slices wait until the cache of
// endpoints is fresh: previous leaders may have had a newer one.
func (c *controller) bootstrap(ctx context.Context) error {
	for _, signal := range []onceSignal{c.slicesSynced, c.endpointsSynced} {
		select {
		case <-signal.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	c.assignAll()
	if err := c.Source.awaitFresh(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.planner.confirm()
	c.flush()
	return nil
}

func (c *controller) assignAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.planner.synced {
		return
	}
	c.planner.bootstrap(c.Source.content)
	c.Log.Info("caches synced, writing CiliumEndpointSlices", "endpoints", c.planner.endpoints.Len(), "slices", len(c.planner.slices))
	c.flush()
}

// flush enqueues dirty slices without a delay. The caller has the lock.
func (c *controller) flush() {
	now := time.Now()
	for _, s := range c.planner.drain() {
		c.batch.add(s.name, now, true, sliceTrigger(s.name, s.stored.revision))
	}
	c.wakeBatcher()
}

// enqueueDirty enqueues dirty slices with the delay of the batch. The caller has the lock.
func (c *controller) enqueueDirty(trigger k8s.Trigger) {
	dirty := c.planner.drain()
	if len(dirty) == 0 {
		return
	}
	now := time.Now()
	for _, s := range dirty {
		if _, pending := c.since[s.name]; !pending {
			c.since[s.name] = now
		}
		c.batch.add(s.name, now, c.planner.isFull(s), trigger)
	}
	c.wakeBatcher()
}

func sliceTrigger(name string, revision slim.Revision) k8s.Trigger {
	return k8s.Trigger{Kind: ciliumio.EndpointSlices.Name(), Name: name, ResourceVersion: revision.String()}
}

func (c *controller) wakeBatcher() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// runBatch moves slices from the batch to the work queue when they are due.
func (c *controller) runBatch(ctx context.Context) error {
	for {
		c.mu.Lock()
		due, next := c.batch.popDue(time.Now())
		keys, queues := make([]sliceKey, len(due)), make([]*reconcile.Queue[sliceKey], len(due))
		for i, p := range due {
			var isFast bool
			keys[i], isFast = c.keyOf(p.name)
			if queues[i] = c.standard; isFast {
				queues[i] = c.fast
			}
		}
		c.mu.Unlock()
		for i, p := range due {
			queues[i].Add(keys[i], p.triggers...)
		}
		var timer <-chan time.Time
		if next > 0 {
			timer = time.After(next)
		}
		select {
		case <-timer:
		case <-c.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// maxConflicts is how often a slice is refetched and written again at once after another writer has changed it.
const maxConflicts = 5

// reconcile writes a slice if it differs from its desired state, which is computed again after the wait for the limiter.
func (c *controller) reconcile(ctx context.Context, key sliceKey, queue string) (err error) {
	name := key.name
	done, err := c.busy.acquire(ctx, name)
	if err != nil {
		return err
	}
	defer done()
	for range maxConflicts {
		if op, _ := c.nextOp(name, false); op.kind == opNone {
			return nil
		}
		if err := c.turns.wait(ctx, queue == fast, key.namespace); err != nil {
			return err
		}
		op, since := c.nextOp(name, true)
		if op.kind == opNone {
			return nil
		}
		if err = c.execute(ctx, op, since, queue); !isStale(err, refOf(name)) {
			return err
		}
		if err := c.refetch(ctx, name); err != nil {
			return err
		}
	}
	return err
}

// nextOp is the next write of a slice. With start it counts as under way from then on.
func (c *controller) nextOp(name string, start bool) (op writeOp, since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer panics.Sharing()
	op = c.planner.nextOp(name, c.Source.content)
	if !start && op.kind != opNone {
		return op, since
	}
	since = c.since[name]
	delete(c.since, name)
	c.batch.remove(name)
	if op.slice != nil {
		c.planner.recordStart(op)
	}
	return op, since
}

func (c *controller) execute(ctx context.Context, op writeOp, since time.Time, queue string) error {
	var uid slim.UID
	var revision slim.Revision
	var err error
	name := op.slice.name
	switch op.kind {
	case opCreate:
		uid, revision, err = c.Server.create(ctx, op.object)
	case opUpdate:
		uid, revision, err = c.Server.update(ctx, op.object, op.copies)
	case opDelete:
		if err = c.Server.delete(ctx, name, op.base); k8s.IsNotFound(err, refOf(name)) {
			err = nil
		}
	}
	c.Metrics.recordWrite(op, since, queue, err)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.planner.recordFailure(op, k8s.Refused(err))
		if was, pending := c.since[name]; !since.IsZero() && (!pending || since.Before(was)) {
			c.since[name] = since
		}
		c.enqueueDirty(sliceTrigger(name, op.base.revision))
		return err
	}
	c.planner.recordWrite(op, uid, revision)
	c.enqueueDirty(sliceTrigger(name, revision))
	return nil
}

// isStale reports whether a write was refused because the planner has an old state of the slice.
func isStale(err error, ref k8s.Ref) bool {
	return k8s.IsConflict(err, ref) || k8s.IsAlreadyExists(err, ref) || k8s.IsNotFound(err, ref)
}

// refetch reads a slice from the server.
func (c *controller) refetch(ctx context.Context, name string) error {
	now, err := c.Server.get(ctx, name)
	if err != nil && !k8s.IsNotFound(err, refOf(name)) {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.planner.recordRefetch(name, now)
	c.enqueueDirty(sliceTrigger(name, now.revision))
	return nil
}

// watchNodes sets the write rate by the number of nodes.
func (c *controller) watchNodes(ctx context.Context) error {
	store, err := c.Nodes.Store(ctx)
	if err != nil {
		return err
	}
	last := -1
	for range c.Nodes.Changes(ctx) {
		if n := store.Len(); n != last {
			limit, burst := c.limits.at(n)
			c.limiter.SetLimit(limit)
			c.limiter.SetBurst(burst)
			last = n
		}
	}
	return ctx.Err()
}
