// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"context"
	"maps"
	"slices"

	"github.com/skep-operator/skep/resources/agents"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// watchAgents keeps the fleet up to date, and assigns pods anew whose agents run another release than before.
func (c *controller) watchAgents(ctx context.Context) error {
	for batch := range c.Agents.Changes(ctx, stream.BatchSize(64)) {
		var nodes []slim.String
		others := false // the releases that run anywhere are others than before
		c.update(func(t *table) {
			before := t.fleet.Running()
			for _, ch := range batch.Changes {
				nodes = append(nodes, t.fleet.Apply(ch)...)
			}
			others = t.fleet.Running() != before
		})
		if len(nodes) > 0 {
			trigger := agents.Pods.Trigger(batch.Changes[0].Object)
			c.reassign(trigger, func(p *slim.Pod) bool { return others || slices.Contains(nodes, p.Spec.NodeName) })
		}
		if batch.Synced {
			close(c.agents)
			c.markSourceSynced()
		}
	}
	return ctx.Err()
}

// reassign computes the labels of pods again, and enqueues what is missing then.
func (c *controller) reassign(trigger k8s.Trigger, concerns func(*slim.Pod) bool) {
	c.mu.Lock()
	store := c.podStore
	c.mu.Unlock()
	if store == nil {
		return // pods come later
	}
	var keys []slim.Key
	for p := range store.All() {
		if concerns(p) {
			keys = append(keys, p.Key())
		}
	}
	for some := range slices.Chunk(keys, recheckedAtOnce) {
		for _, s := range c.update(func(t *table) { t.recheck(store, some) }) {
			c.enqueue(s.labels, trigger)
		}
	}
}

// recheckSeveral computes the labels of pods again that may get several identities: their endpoints may have been made anew.
func (c *controller) recheckSeveral() {
	c.mu.Lock()
	store, keys := c.podStore, slices.Collect(maps.Keys(c.table.several))
	c.mu.Unlock()
	if store == nil {
		return
	}
	for some := range slices.Chunk(keys, recheckedAtOnce) {
		c.updateAndEnqueue(func(t *table) { t.recheck(store, some) })
	}
}

// recheckedAtOnce is how many pods are computed again before others may use the table.
const recheckedAtOnce = 512

// recheckPods computes the labels of pods again that depend on endpoints. The caller has the lock.
func (c *controller) recheckPods(t *table) {
	if c.podStore == nil || t.havePorts == 0 && !t.portsWanted() {
		return
	}
	var keys []slim.Key
	for p := range c.podStore.All() {
		if p.Spec.NamedPorts != (slim.NamedPorts{}) {
			keys = append(keys, p.Key())
		}
	}
	t.recheck(c.podStore, keys)
}

// recheck computes the labels of pods again. The store is as new as what the table knows, or newer.
func (t *table) recheck(store *stream.Store[slim.Pod], pods []slim.Key) {
	for _, key := range pods {
		if p, exists := store.Get(key); exists {
			t.upsertPod(p)
		}
	}
}
