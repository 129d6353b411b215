// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/lifecycle"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// controller reads the cloud with one worker, and processes CiliumNodes with others, each one by one at a time.
type controller struct {
	params
	cloud   *cloudState
	queue   *reconcile.Queue[string] // of names of CiliumNodes
	reads   *reconcile.Queue[string]
	batches *rate.Limiter // of reads of instances
	// nodeReads are those of Nodes, where several CiliumNodes name one instance.
	nodeReads *rate.Limiter
	random    func() float64
	now       func() time.Time
	opened    chan struct{} // closed when the streams show what earlier leaders wrote
	open      func()
	started   chan struct{} // closed when all CiliumNodes and the cloud are known
	start     func()

	mu     sync.Mutex // guards the fields below; never held during a request
	nodes  *stream.Store[ciliumNode]
	pods   *stream.Store[pendingPod]
	states map[string]*nodeState // by name of the CiliumNode
	owners map[string]string     // by instance, the name of the CiliumNode that has it in this term
	// provided are answers about Nodes, by name.
	provided map[string]provided
	reading  map[string]bool // Nodes
	totals   totals
	failed   map[string]string // what nodes lack addresses for
	unfit    map[string]string // what nodes have of the cloud that no pod can have
}

type params struct {
	cell.In

	Config   Config
	Cluster  cluster.Config
	Provider Provider
	Nodes    stream.Resource[ciliumNode]
	Pods     stream.Resource[pendingPod]
	Client   k8s.Client
	Handover leading.Handover
	Deps     reconcile.Deps
	Metrics  *ipamMetrics
	Deficit  *deficitMetrics
	Sync     *syncMetrics
	Resync   *resyncMetrics
	Health   health.Reporter
	Log      *slog.Logger
}

// nodeState is what is kept of a node between its attempts. The worker that processes the node owns it, but for numbers.
type nodeState struct {
	uid      string
	instance string
	releases
	pools   bool   // releases are those of the protocol of pools
	awaits  uint64 // nothing is changed before an instance was read later than by the read of this number
	added   bool   // by the last run, to the instance
	retry   retry
	paused  *v2.CiliumNodeSpec // what the pause of retry holds for; nil for any
	problem string             // for users, "" for none
	slotsAt time.Time
	static  static
	idle    map[string]idleEdit // the last, by subresource
	numbers numbers             // guarded by controller.mu
}

func newController(p params) *controller {
	c := &controller{
		params: p, random: rand.Float64, now: p.Deps.Plan.Now,
		opened: make(chan struct{}), started: make(chan struct{}),
		states: map[string]*nodeState{}, owners: map[string]string{}, provided: map[string]provided{}, reading: map[string]bool{}, failed: map[string]string{}, unfit: map[string]string{},
	}
	// Reads of instances get a small part of the calls: while many nodes need one, more of them share it.
	c.batches = rate.NewLimiter(rate.Limit(p.Config.LimitIPAMAPIQPS/15), max(4, p.Config.LimitIPAMAPIBurst/10))
	c.nodeReads = rate.NewLimiter(nodesPerSecond, nodesAtOnce)
	c.cloud = newCloudState(p.Provider, func() time.Time { return c.now() })
	c.open = sync.OnceFunc(func() { close(c.opened) })
	c.start = sync.OnceFunc(func() { close(c.started) })
	// An attempt changes the cloud for a node and writes its CiliumNode, which the originals do one after the other.
	c.queue = reconcile.NewQueue(p.Deps, "allocate", c.reconcile, reconcile.Workers(max(1, p.Config.ParallelAllocWorkers)), reconcile.AwaitReady(await(c.started)),
		reconcile.CountedAs((*reconcile.DutyMetrics)(p.Deficit), (*reconcile.DutyMetrics)(p.Sync)))
	c.reads = reconcile.NewQueue(p.Deps, "read", c.read, reconcile.Workers(1), reconcile.Backoff(time.Second, readInterval), reconcile.HonorBackoff(), reconcile.AwaitReady(await(c.opened)),
		reconcile.CountedAs((*reconcile.DutyMetrics)(p.Resync)))
	return c
}

func await(c <-chan struct{}) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-c:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// write runs the work queue of nodes.
func (c *controller) write(ctx context.Context) error { return c.queue.Run(ctx) }

// Keys of the queue of reads.
const (
	readAll       = "all instances"
	readInstances = "requested instances"
)

// readInterval is the pause after a complete read.
const readInterval = time.Minute

// readCloud runs the queue of reads, the first of which is complete.
func (c *controller) readCloud(ctx context.Context) error {
	c.reads.Add(readAll, c.Deps.TermTrigger())
	return c.reads.Run(ctx)
}

// read reads the cloud, and enqueues the nodes that the result concerns.
func (c *controller) read(ctx context.Context, what string) (err error) {
	if what == readInstances {
		if turn := c.batches.Reserve(); turn.Delay() > 0 {
			defer turn.Cancel()
			return reconcile.RequeueAfter(turn.Delay())
		}
	}
	defer func(began time.Time) {
		c.Metrics.ReadDuration.WithLabelValues(statusOf(err)).Observe(time.Since(began).Seconds())
	}(time.Now())
	failed := c.cloud.failed()
	if what == readInstances {
		ids, err := c.cloud.readWanted(ctx)
		if err == nil && failed && isClosed(c.started) {
			c.enqueueAll() // nodes wait for a read that succeeds
		}
		for _, id := range ids {
			c.enqueueInstance(id)
		}
		return err
	}
	missing, err := c.cloud.readAll(ctx)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		c.reads.Add(readInstances, k8s.Trigger{Kind: "Instance", Name: missing[0]})
	}
	c.Metrics.Resyncs.Inc()
	c.Metrics.setSubnets(c.cloud.allSubnets())
	if isClosed(c.started) {
		c.enqueueAll()
	}
	return reconcile.RequeueAfter(readInterval)
}

// want requests a read of an instance.
func (c *controller) want(id string) {
	c.cloud.want(id)
	c.reads.Add(readInstances, k8s.Trigger{Kind: "Instance", Name: id})
}

// watchNodes enqueues CiliumNodes that change.
func (c *controller) watchNodes(ctx context.Context) error {
	if err := stream.AwaitPredecessor(ctx, c.Nodes, c.Handover, v2.CiliumNodeResource); err != nil {
		return err
	}
	nodes, err := c.Nodes.Store(ctx)
	if err != nil {
		return err
	}
	pods, err := c.Pods.Store(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.nodes, c.pods = nodes, pods
	c.mu.Unlock()
	c.open()
	if err := await(c.cloud.synced)(ctx); err != nil {
		return err
	}
	c.enqueueAll()
	c.start()
	c.Log.Info("caches synced, allocating addresses of the cloud", "nodes", nodes.Len())
	for batch := range c.Nodes.Changes(ctx) {
		for _, ch := range batch.Changes {
			c.queue.Add(ch.Key.Name, ciliumNodes.Trigger(ch.Object))
			c.enqueueInstance(ch.Object.instanceID()) // others that it had been refused for
		}
	}
	return ctx.Err()
}

// enqueueInstance enqueues the CiliumNodes of an instance.
func (c *controller) enqueueInstance(id string) {
	if id == "" {
		return
	}
	for n := range stream.ByIndex(c.nodes, byInstance, id) {
		c.queue.Add(n.Name, k8s.Trigger{Kind: "Instance", Name: id})
	}
}

// enqueueAll enqueues all CiliumNodes: those that lack most first, then others, then those with most surplus.
func (c *controller) enqueueAll() {
	type ranked struct {
		name string
		rank int
	}
	var all []ranked
	for n := range c.nodes.All() {
		all = append(all, ranked{n.Name, c.rank(n)})
	}
	slices.SortFunc(all, func(a, b ranked) int { return cmp.Or(cmp.Compare(b.rank, a.rank), cmp.Compare(a.name, b.name)) })
	for _, r := range all {
		c.queue.Add(r.name, k8s.Trigger{Kind: "CiliumNode", Name: r.name})
	}
}

// rank is positive for a node that lacks addresses, and zero or negative for others.
func (c *controller) rank(n *ciliumNode) int {
	i, _, _ := c.cloud.get(n.instanceID())
	if i.Instance == nil || n.DecodeError() != nil {
		return 0
	}
	var s snapshot
	err := lifecycle.Recover(func() (err error) { // a node for which it panics is told of when its turn comes
		s, err = snapshotOf(c.Provider, c.Cluster.IPAM, n.forProvider(c.Cluster), i.Instance, func(string) bool { return false }, c.isShared(n.instanceID()))
		return err
	})
	switch {
	case err != nil:
		return 0
	case s.needed() > 0:
		return s.needed()
	case c.Config.ReleaseExcessIPs:
		return -s.excess()
	}
	return 0
}

func (n *ciliumNode) forProvider(c cluster.Config) *Node {
	return &Node{Name: n.Name, InstanceID: n.instanceID(), Spec: &n.Spec, Status: &n.Status, IPv6: asksForIPv6(c, &n.Spec.IPAM, &n.Status.IPAM)}
}

// stateOf returns the state of a node. One of another object, or of another instance, starts over, and the instance is
// read before anything is changed.
func (c *controller) stateOf(n *ciliumNode) *nodeState {
	c.mu.Lock()
	st := c.states[n.Name]
	c.mu.Unlock()
	if st != nil && st.uid == n.UID.String() && st.instance == n.instanceID() {
		return st
	}
	if st != nil && st.instance == n.instanceID() {
		c.drop(n.Name)
		c.cloud.outdate(st.instance, c.now())
	} else if st != nil {
		c.forget(n.Name)
	}
	st = &nodeState{uid: n.UID.String(), instance: n.instanceID(), idle: map[string]idleEdit{}}
	c.cloud.outdate(st.instance, n.CreationTimestamp.Time())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.states[n.Name] = st
	c.totals.add(st.numbers, 1)
	return st
}

// forget drops what is kept of a node that is deleted, and of its instance, unless that is another one's. Nothing is detached: that is done with the instance.
func (c *controller) forget(name string) {
	st := c.drop(name)
	if st != nil && (c.disown(st.instance, name) || !c.isOfNode(st.instance)) {
		c.cloud.forget(st.instance)
	}
}

// drop drops what is kept of a node, and returns it.
func (c *controller) drop(name string) *nodeState {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.provided, name)
	st := c.states[name]
	if st == nil {
		return nil
	}
	delete(c.states, name)
	c.totals.add(st.numbers, -1)
	c.Metrics.remove(name)
	c.Metrics.setTotals(c.totals)
	c.setProblem(name, "")
	c.setUnfit(name, nil)
	return st
}

// count shows the numbers of a node.
func (c *controller) count(name string, st *nodeState, n numbers) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.totals.add(st.numbers, -1)
	st.numbers = n
	c.totals.add(n, 1)
	c.Metrics.set(name, n)
	c.Metrics.setTotals(c.totals)
}

func (c *controller) pending(name string) int {
	return stream.CountByIndex(c.pods, pendingByNode, slim.MakeString(name))
}
