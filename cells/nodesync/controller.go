// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodesync

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/agents"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/resources/sweep"
	"github.com/skep-operator/skep/runtime/cell"
)

// controller writes the keys of CiliumNodes and deletes those of gone nodes.
type controller struct {
	params
	prefix string // of the keys of this cluster, with a slash at its end
	queue  *reconcile.Queue[string]
	sweep  *sweep.Sweep[candidate, observedKey]
	nodes  *stream.Store[node]       // after opened
	pods   *stream.Store[agents.Pod] // after opened
	opened chan struct{}             // closed when the stores are complete
	listed chan struct{}             // closed when all keys were listed
	noNode bool                      // of the sweep: there was no CiliumNode
	status kvstore.SyncMetrics

	tooLarge *kvstore.SizeReport
	fought   *kvstore.Contention

	mu      sync.Mutex // guards the following; never held during a request
	keys    map[string]observedKey
	written map[string][]byte // the values that this process wrote last, by name
	pending map[string]int    // names that are queued, and how often they changed since
	synced  bool              // all CiliumNodes were queued
}

type params struct {
	cell.In

	Timing     timing
	Cluster    cluster.Config
	Nodes      stream.Resource[node]
	Pods       stream.Resource[agents.Pod]
	Release    release.Configured
	Store      kvstore.Client
	Kubernetes k8s.Client
	Reconcile  reconcile.Deps
	Sweep      sweep.Deps
	Metrics    *nodeMetrics
	Events     *k8s.Events
	Log        *slog.Logger
}

func newController(p params) (*controller, error) {
	status, err := kvstore.NewSyncMetrics(p.Store, kvstore.NodesPrefix, p.Cluster.ClusterName)
	if err != nil {
		return nil, err
	}
	c := &controller{
		params: p, tooLarge: kvstore.NewSizeReport(p.Reconcile.Health, "CiliumNodes"), fought: kvstore.NewContention(p.Reconcile.Health),
		prefix: kvstore.Folder(kvstore.NodesPrefix, p.Cluster.ClusterName), status: status,
		opened: make(chan struct{}), listed: make(chan struct{}), keys: map[string]observedKey{}, written: map[string][]byte{}, pending: map[string]int{},
	}
	c.queue = reconcile.NewQueue(p.Reconcile, "write", c.syncKey, reconcile.AwaitReady(c.awaitSynced))
	c.sweep = c.newSweep()
	return c, nil
}

// write brings the keys of CiliumNodes to their desired state.
func (c *controller) write(ctx context.Context) error {
	defer c.status.Initial.Set(0)
	return c.queue.Run(ctx)
}

// enqueue queues a name.
func (c *controller) enqueue(name string, t k8s.Trigger) {
	c.mu.Lock()
	c.pending[name]++
	c.reportPending()
	c.mu.Unlock()
	c.queue.Add(name, t)
}

// reportPending sets the metrics of the queue. The caller holds the lock.
func (c *controller) reportPending() {
	c.status.Queue.Set(float64(len(c.pending)))
	if c.synced && len(c.pending) == 0 {
		c.status.Initial.Set(1)
	}
}

// syncKey is writeKey, and records what is done.
func (c *controller) syncKey(ctx context.Context, name string) error {
	c.mu.Lock()
	changes := c.pending[name]
	c.mu.Unlock()
	if err := c.writeKey(ctx, name); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending[name] == changes { // else it is queued again
		delete(c.pending, name)
	}
	c.reportPending()
	return nil
}

// watchNodes enqueues the CiliumNodes that change.
func (c *controller) watchNodes(ctx context.Context) (err error) {
	if c.nodes, err = c.Nodes.Store(ctx); err != nil {
		return err
	}
	if c.pods, err = c.Pods.Store(ctx); err != nil {
		return err
	}
	close(c.opened)
	for batch := range c.Nodes.Changes(ctx) {
		for _, ch := range batch.Changes {
			if ch.Kind == stream.Delete || !ch.Object.DeletionTimestamp.IsZero() {
				c.tooLarge.Set(ch.Key.Name, "")
				c.sweep.Kick()
				continue
			}
			c.enqueue(ch.Key.Name, k8s.Trigger{Kind: ciliumNodes.Name(), Name: ch.Key.Name, ResourceVersion: ch.Object.ResourceVersion.String()})
		}
		if batch.Synced {
			c.mu.Lock()
			c.synced = true
			c.reportPending()
			c.mu.Unlock()
		}
	}
	return ctx.Err()
}

// watchAgents enqueues the nodes whose agents change: their releases decide who writes the keys.
func (c *controller) watchAgents(ctx context.Context) error {
	for batch := range c.Pods.Changes(ctx) {
		for _, ch := range batch.Changes {
			if node := ch.Object.Spec.NodeName.String(); node != "" {
				c.enqueue(node, agents.Pods.Trigger(ch.Object))
			}
		}
	}
	return ctx.Err()
}

// watchKeys observes the keys of the cluster.
func (c *controller) watchKeys(ctx context.Context) error {
	defer c.Metrics.Keys.Reset()
	for e := range c.Store.Watch(ctx, c.prefix) {
		if e.Kind == kvstore.Synced {
			close(c.listed)
			continue
		}
		name := strings.TrimPrefix(e.Key, c.prefix)
		if strings.Contains(name, "/") {
			continue // no node has such a name
		}
		c.handleEvent(name, e)
		c.enqueue(name, trigger(e.Entry))
	}
	return ctx.Err()
}

func (c *controller) handleEvent(name string, e kvstore.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.keys[name]
	last, wrote := c.written[name]
	ours := wrote && e.Kind == kvstore.Upsert && e.Lease == 0 && bytes.Equal(last, e.Value)
	if before.ours && !ours && e.Lease == 0 { // an agent may put its key on its lease
		c.fought.Undone(e.Key, time.Now())
	}
	if e.Kind == kvstore.Delete {
		delete(c.keys, name)
		c.Metrics.count(before, observedKey{})
		return
	}
	k := observe(before, c.Cluster.ClusterName, name, e.Entry, time.Now())
	if !k.readable && (before.readable || !before.exists()) {
		c.Log.Warn("the value of a node's key cannot be decoded", "key", e.Key, "revision", e.ModRevision)
	}
	if k.ours = ours; ours {
		k.entry.Value = last // one copy
	}
	c.keys[name] = k
	c.Metrics.count(before, k)
}

func trigger(e kvstore.Entry) k8s.Trigger {
	return k8s.Trigger{Kind: "EtcdKey", Name: e.Key, ResourceVersion: fmt.Sprint(e.ModRevision)}
}

// awaitSynced waits until CiliumNodes, pods of agents and keys are complete.
func (c *controller) awaitSynced(ctx context.Context) error {
	for _, synced := range []chan struct{}{c.opened, c.listed} {
		select {
		case <-synced:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (c *controller) observed(name string) observedKey {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keys[name]
}

// node returns a CiliumNode that exists and is not being deleted.
func (c *controller) node(name string) (n *node, exists bool) {
	n, exists = c.nodes.Get(slim.Key{Name: name})
	return n, exists && n.DeletionTimestamp.IsZero()
}

// writeKey brings the key of a CiliumNode to its desired state.
func (c *controller) writeKey(ctx context.Context, name string) error {
	n, exists := c.node(name)
	if !exists {
		c.forget(name)
	}
	if !exists || c.nodes.Hides(slim.Key{Name: name}) {
		return nil
	}
	if !release.InAll(release.NodeKeysByOperator, agents.ReleasesOn(c.pods, name, c.Release)) {
		c.tooLarge.Set(name, "")
		return nil
	}
	want, leftOut, err := encode(c.Cluster, n)
	if err != nil {
		return err
	}
	k, key := c.observed(name), c.prefix+name
	if k.byAgent() {
		leftOut = "" // it is not written here
	}
	if !needsWrite(k, want) {
		c.reportSize(n, leftOut)
		return c.fought.Done(key)
	}
	if pause := c.begin(name, want); pause > 0 {
		return reconcile.RequeueAfter(pause)
	}
	written, err := c.Store.WriteIf(ctx, []kvstore.Guard{k.guard(key)}, kvstore.Put(key, want))
	var tooLarge *kvstore.TooLargeError
	if errors.As(err, &tooLarge) { // until the CiliumNode is another one
		c.status.Errors.Inc()
		c.drop(name)
		c.reportSize(n, "not at all: "+tooLarge.Error())
		return nil
	}
	if err != nil {
		c.status.Errors.Inc()
		return err
	}
	c.reportSize(n, leftOut)
	if !written {
		return reconcile.Recheck() // the change is to come
	}
	c.fought.Put(key, true, time.Now())
	c.Metrics.Written.Inc()
	return nil
}

// begin records the value that is about to be written, or returns the pause before that, as another writer undoes it.
func (c *controller) begin(name string, want []byte) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := c.prefix + name
	c.fought.Changed(key, !bytes.Equal(c.written[name], want))
	if pause := c.fought.Wait(key, time.Now()); pause > 0 {
		return pause
	}
	c.written[name] = want
	c.fought.Changed(key, false)
	return 0
}

// drop forgets a value that was not written.
func (c *controller) drop(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.written, name)
}

// forget forgets what was reported and written of a CiliumNode that is gone.
func (c *controller) forget(name string) {
	c.tooLarge.Set(name, "")
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.written, name)
}

// reportSize reports what the key of a CiliumNode goes without, if that is new.
func (c *controller) reportSize(n *node, leftOut string) {
	if !c.tooLarge.Set(n.Name, leftOut) || leftOut == "" {
		return
	}
	c.Log.Warn("a CiliumNode is too large for its key", "node", n.Name, "written", leftOut)
	c.Events.Warning(corev1.ObjectReference{
		APIVersion: v2.SchemeGroupVersion.String(), Kind: ciliumNodes.Name(), Name: n.Name, UID: n.UID.API(),
	}, "NodeTooLarge", "the node is larger than a key of etcd can be, and is written "+leftOut)
}
