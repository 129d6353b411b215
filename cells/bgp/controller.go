// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package bgp

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
)

// controller passes changes to the planner and writes what it decides. A key is that of a CiliumBGPNodeConfig, which is also
// that of its node; one with a kind in place of the namespace is that of an object with conditions.
type controller struct {
	params
	nodes       *stream.Store[node]
	overrides   *stream.Store[override]
	nodeConfigs *stream.Store[nodeConfig]
	peerConfigs *stream.Store[peerConfig]
	conditions  map[string]bool // kinds whose definition has a status
	began       time.Time

	mu       sync.Mutex // guards the fields below; never held during a request
	planner  *planner
	synced   bool
	problems map[string]string // by kind and name of the object
}

type params struct {
	cell.In

	Config         Config
	Nodes          stream.Resource[node]
	Overrides      stream.Resource[override]
	NodeConfigs    stream.Resource[nodeConfig]
	PeerConfigs    stream.Resource[peerConfig]
	ClusterConfigs stream.Resource[clusterConfig]
	Client         k8s.Client
	Events         *k8s.Events
	Permissions    *k8s.Permissions
	Deps           reconcile.Deps
	Metrics        *bgpMetrics
	Health         health.Reporter
	Log            *slog.Logger
}

func newController(p params) *controller {
	return &controller{params: p, began: time.Now(), planner: newPlanner(newRouterIDs(p.Config.pool())), problems: map[string]string{}}
}

// writers is the number of objects that are written at once.
const writers = 16

// QueueOptions are those of the work queue.
func (c *controller) QueueOptions() []reconcile.Option {
	return []reconcile.Option{reconcile.Workers(writers)}
}

// Open is called before anything is watched.
func (c *controller) Open(ctx context.Context) error {
	var errs [5]error
	c.nodes, errs[0] = c.Nodes.Store(ctx)
	c.overrides, errs[1] = c.Overrides.Store(ctx)
	c.nodeConfigs, errs[2] = c.NodeConfigs.Store(ctx)
	c.peerConfigs, errs[3] = c.PeerConfigs.Store(ctx)
	_, errs[4] = c.ClusterConfigs.Store(ctx) // its definition exists then
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	return c.findConditions(ctx)
}

// Synced is called when all objects are known.
func (c *controller) Synced(context.Context) []slim.Key {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.synced = true
	c.planner.markSynced()
	c.Log.Info("caches synced, writing CiliumBGPNodeConfigs", "nodes", len(c.planner.nodes), "clusterConfigs", len(c.planner.configs), "nodeConfigs", len(c.planner.nodeConfigs))
	return append(keysOf(c.planner.names()), c.configKeys()...)
}

func keysOf(names []string) []slim.Key {
	keys := make([]slim.Key, len(names))
	for i, name := range names {
		keys[i].Name = name
	}
	return keys
}

// configKeys are the keys of all CiliumBGPClusterConfigs. The caller has the lock.
func (c *controller) configKeys() (keys []slim.Key) {
	if !c.synced {
		return nil
	}
	for _, config := range c.planner.configs {
		keys = append(keys, configKey(config.Name))
	}
	return keys
}

func configKey(name string) slim.Key { return slim.Key{Namespace: clusterConfigs.Name(), Name: name} }
func peerKey(name string) slim.Key   { return slim.Key{Namespace: peerConfigs.Name(), Name: name} }

func (c *controller) clusterConfigChanged(ch stream.Change[clusterConfig]) []slim.Key {
	c.mu.Lock()
	defer c.mu.Unlock()
	var names []string
	if ch.Kind == stream.Delete {
		names = c.planner.removeConfig(ch.Key.Name)
	} else {
		names = c.planner.setConfig(ch.Object)
	}
	return append(keysOf(names), append(c.configKeys(), configKey(ch.Key.Name))...)
}

func (c *controller) overrideChanged(ch stream.Change[override]) []slim.Key {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ch.Kind == stream.Delete {
		return keysOf(c.planner.removeOverride(ch.Key.Name))
	}
	return keysOf(c.planner.setOverride(ch.Object))
}

// nodeConfigChanged is the CiliumBGPNodeConfig, and the CiliumBGPClusterConfigs whose findings it changes.
func (c *controller) nodeConfigChanged(ch stream.Change[nodeConfig]) []slim.Key {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.planner.findingsOf(ch.Key.Name)
	var names []string
	if ch.Kind == stream.Delete {
		names = c.planner.removeNodeConfig(ch.Key.Name)
	} else {
		names = c.planner.setNodeConfig(ch.Object)
	}
	return append(keysOf(names), c.changedConfigs(before, ch.Key.Name)...)
}

// changedConfigs are the keys of the CiliumBGPClusterConfigs to whose findings a node contributes something else than before. The
// caller has the lock.
func (c *controller) changedConfigs(before map[string]finding, name string) (keys []slim.Key) {
	if !c.synced {
		return nil
	}
	now := c.planner.findingsOf(name)
	for _, config := range c.planner.configs {
		if before[config.Name] != now[config.Name] {
			keys = append(keys, configKey(config.Name))
		}
	}
	return keys
}

func (c *controller) peerConfigChanged(ch stream.Change[peerConfig]) []slim.Key {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append(c.configKeys(), peerKey(ch.Key.Name))
}

func (c *controller) nodeChanged(ch stream.Change[node]) []slim.Key {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.planner.findingsOf(ch.Key.Name)
	if ch.Kind == stream.Delete {
		c.planner.removeNode(ch.Key.Name)
	} else if c.planner.setNode(ch.Key.Name, ch.Object.Labels) {
		return nil
	}
	return append(c.changedConfigs(before, ch.Key.Name), slim.Key{Name: ch.Key.Name})
}

// undecodedRetry is how often a key is reconciled while an object that it depends on cannot be decoded: there is no change
// when that is deleted.
const undecodedRetry = time.Minute

// undecodable is why nothing is written.
const undecodable = "none: the CiliumNode, the CiliumBGPNodeConfig or the CiliumBGPNodeConfigOverride cannot be decoded"

// Reconcile brings a CiliumBGPNodeConfig, or the conditions of an object, to the desired state.
func (c *controller) Reconcile(ctx context.Context, key slim.Key) (reconcile.Result, error) {
	began := time.Now()
	defer func() { c.Metrics.Duration.Observe(time.Since(began).Seconds()) }()
	switch key.Namespace {
	case clusterConfigs.Name():
		return c.reconcileConfig(ctx, key.Name)
	case peerConfigs.Name():
		return c.reconcilePeer(ctx, key.Name)
	}
	if c.nodes.Hides(key) || c.nodeConfigs.Hides(key) || c.overrides.Hides(key) {
		return reconcile.Result{Reason: undecodable, RequeueAfter: undecodedRetry}, nil
	}
	a, err := c.decide(key.Name)
	if err == nil {
		err = c.act(ctx, key.Name, a)
	}
	switch {
	case errors.Is(err, errOutdated):
		return reconcile.Result{}, reconcile.Recheck()
	case err != nil && a.owner != nil:
		c.Metrics.Errors.WithLabelValues(clusterConfigs.Name(), a.owner.Name).Inc()
	}
	return reconcile.Result{Reason: a.reason}, err
}

func (c *controller) decide(name string) (action, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if hidden := c.nodeConfigs.Unreadable(); len(hidden) > 0 {
		c.planner.ids.setHidden(hidden[0].Name)
	} else {
		c.planner.ids.setHidden("")
	}
	a, err := c.planner.decide(name)
	if a.verb == create || a.verb == update {
		c.planner.ids.begin(name)
	}
	c.reportOverride(name, err)
	return a, err
}
