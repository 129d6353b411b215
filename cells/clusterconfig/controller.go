// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterconfig

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/job"
)

// controller keeps one key at its desired value.
type controller struct {
	params
	key       string
	marker    string // of EndpointSlices, "" if this cluster exports none
	queue     *reconcile.Queue[string]
	fought    *kvstore.Contention
	lastWrite time.Time // of the queue's worker
	last      []byte    // what it has written then
}

type params struct {
	cell.In

	Timing    timing
	Cluster   cluster.Config
	KVStore   kvstore.Config
	Store     kvstore.Client
	Reconcile reconcile.Deps
}

// timing is the minimum time between two writes of one value, for a conflict with another writer.
type timing time.Duration

const minWriteInterval = timing(5 * time.Second)

func newController(p params) *controller {
	c := &controller{params: p, fought: kvstore.NewContention(p.Reconcile.Health), key: kvstore.Key(kvstore.ClusterConfigPrefix, p.Cluster.ClusterName)}
	if p.KVStore.SynchronizeK8sServices && p.Cluster.ExportsSlices() {
		c.marker = kvstore.Key(kvstore.SyncedPrefix, p.Cluster.ClusterName, kvstore.EndpointSlicesPrefix)
	}
	c.queue = reconcile.NewQueue(p.Reconcile, "publish", c.ensure, reconcile.Workers(1), reconcile.Backoff(time.Second, 5*time.Second))
	return c
}

func (c *controller) publish() job.Job { return c.queue.Job() }

// watch enqueues the key when etcd is reached, and whenever the key changes.
func (c *controller) watch(ctx context.Context) error {
	for e := range c.Store.Watch(ctx, c.key) {
		switch {
		case e.Kind == kvstore.Synced:
			c.queue.Add(c.key)
		case e.Key == c.key:
			c.queue.Add(c.key, k8s.Trigger{Kind: "EtcdKey", Name: e.Key, ResourceVersion: fmt.Sprint(e.ModRevision)})
		}
	}
	return ctx.Err()
}

// watchMarker enqueues the key when EndpointSlices are there, and when they are not any more.
func (c *controller) watchMarker(ctx context.Context) error {
	if c.marker == "" {
		return nil
	}
	for e := range c.Store.Watch(ctx, c.marker) {
		if e.Key == c.marker {
			c.queue.Add(c.key, k8s.Trigger{Kind: "EtcdKey", Name: e.Key, ResourceVersion: fmt.Sprint(e.ModRevision)})
		}
	}
	return ctx.Err()
}

// desired is the value of the key. It has what readers need of EndpointSlices once these are written: it would be a lie before, or where the user in
// etcd may not write them (CC-7).
func (c *controller) desired(ctx context.Context) ([]byte, error) {
	var marker *kvstore.Entry
	if c.marker != "" {
		var err error
		if marker, err = c.Store.Get(ctx, c.marker); err != nil {
			return nil, err
		}
	}
	value, err := encode(c.Cluster, marker != nil)
	if err != nil {
		return nil, fmt.Errorf("encoding the configuration of cluster %s: %w", c.Cluster.ClusterName, err)
	}
	return value, nil
}

// ensure writes the key if it differs. All writes but the first count as undone, also those of another value: what changes the value, a
// marker (CC-7), is another writer's, too, if it comes and goes again and again.
func (c *controller) ensure(ctx context.Context, key string) error {
	if pause := c.fought.Wait(key, time.Now()); pause > 0 {
		return reconcile.RequeueAfter(pause)
	}
	value, err := c.desired(ctx)
	if err != nil {
		return err
	}
	if pause := time.Duration(c.Timing) - time.Since(c.lastWrite); pause > 0 && bytes.Equal(value, c.last) {
		return reconcile.RequeueAfter(pause)
	}
	written, err := c.Store.Ensure(ctx, key, value)
	if err != nil {
		return err
	}
	if !written {
		return c.fought.Done(key)
	}
	if c.last != nil {
		c.fought.Undone(key, time.Now())
	}
	c.lastWrite, c.last = time.Now(), value
	return c.fought.Done(key)
}
