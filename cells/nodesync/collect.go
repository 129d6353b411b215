// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodesync

import (
	"context"
	"time"

	"github.com/skep-operator/skep/resources/agents"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/resources/sweep"
)

// candidate is a key that looks stale, at a revision.
type candidate struct {
	name     string
	revision int64
}

func (c *controller) newSweep() *sweep.Sweep[candidate, observedKey] {
	return sweep.New(c.Sweep, sweep.Spec[candidate, observedKey]{
		Rule: "collect", Interval: c.Timing.interval, Grace: c.Timing.grace,
		Scan: c.scan, Confirm: c.awaitFresh, Check: c.confirm, Delete: c.delete,
		Trigger: func(k observedKey) k8s.Trigger { return trigger(k.entry) },
	})
}

// collect deletes stale keys.
func (c *controller) collect(ctx context.Context) error {
	if err := c.awaitSynced(ctx); err != nil {
		return err
	}
	return c.sweep.Run(ctx)
}

// awaitFresh returns once the streams show what the API server has now: a pod of an agent may not be seen yet.
func (c *controller) awaitFresh(ctx context.Context) error {
	if err := c.Nodes.WaitForFresh(ctx); err != nil {
		return err
	}
	return c.Pods.WaitForFresh(ctx)
}

// scan finds the keys that have neither a CiliumNode nor an agent.
func (c *controller) scan(context.Context) (found sweep.Found[candidate, observedKey], err error) {
	now := time.Now()
	c.mu.Lock()
	found.Total = len(c.keys)
	var stale []observedKey
	for _, k := range c.keys {
		if c.isStale(k) {
			stale = append(stale, k)
		}
	}
	c.mu.Unlock()
	if c.spared(len(stale)) {
		return found, nil
	}
	for _, k := range stale {
		found.Candidates = append(found.Candidates, sweep.Candidate[candidate, observedKey]{
			Key: candidate{k.name, k.entry.ModRevision}, Object: k, Why: "its CiliumNode and its agent are gone", Wait: k.tooNew(c.Timing, now),
		})
	}
	return found, nil
}

// spared reports whether there is no CiliumNode at all, which allows no conclusions.
func (c *controller) spared(stale int) bool {
	none := c.nodes.Len() == 0 && stale > 0
	if none && !c.noNode {
		c.Log.Warn("no CiliumNode exists, the keys of nodes are kept", "keys", stale)
	}
	c.noNode = none
	return none
}

// isStale reports whether nothing shows that a node exists. A key with the value of another node is not touched.
func (c *controller) isStale(k observedKey) bool {
	if _, exists := c.node(k.name); exists || !k.readable || c.nodes.Hides(slim.Key{Name: k.name}) {
		return false
	}
	return agents.StateOn(c.pods, k.name) == agents.Absent
}

// confirm asks the API server, as the store may miss a CiliumNode that exists.
func (c *controller) confirm(ctx context.Context, k observedKey) (garbage bool, err error) {
	ref := k8s.Ref{Resource: ciliumNodes.Resource(), Name: k.name}
	n, err := c.Kubernetes.Get(ctx, ref)
	switch {
	case k8s.IsNotFound(err, ref):
		return c.isStale(k), nil
	case err != nil:
		return false, err
	}
	return n.GetDeletionTimestamp() != nil && c.isStale(k), nil
}

// delete deletes a key that is unchanged.
func (c *controller) delete(ctx context.Context, k observedKey) (sweep.Outcome, error) {
	deleted, err := c.Store.WriteIf(ctx, []kvstore.Guard{kvstore.Unchanged(k.entry)}, kvstore.Remove(k.entry.Key))
	switch {
	case err != nil:
		c.status.Errors.Inc()
		return sweep.Failed, err
	case !deleted:
		return sweep.Changed, nil
	}
	return sweep.Deleted, nil
}
