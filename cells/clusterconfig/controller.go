// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterconfig

import (
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
	value     []byte
	queue     *reconcile.Queue[string]
	lastWrite time.Time // of the queue's worker
}

type params struct {
	cell.In

	Cluster   cluster.Config
	Store     kvstore.Client
	Reconcile reconcile.Deps
}

// minWriteInterval is the minimum time between two writes, for a conflict with another writer.
const minWriteInterval = 5 * time.Second

func newController(p params) (*controller, error) {
	value, err := encode(p.Cluster)
	if err != nil {
		return nil, fmt.Errorf("encoding the configuration of cluster %s: %w", p.Cluster.ClusterName, err)
	}
	c := &controller{params: p, key: kvstore.Key(kvstore.ClusterConfigPrefix, p.Cluster.ClusterName), value: value}
	c.queue = reconcile.NewQueue(p.Reconcile, "publish", c.ensure, reconcile.Workers(1), reconcile.Backoff(time.Second, 5*time.Second))
	return c, nil
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

// ensure writes the key if it differs.
func (c *controller) ensure(ctx context.Context, key string) error {
	if pause := minWriteInterval - time.Since(c.lastWrite); pause > 0 {
		return reconcile.RequeueAfter(pause)
	}
	written, err := c.Store.Ensure(ctx, key, c.value)
	if written {
		c.lastWrite = time.Now()
	}
	return err
}
