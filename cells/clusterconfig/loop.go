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
	"github.com/skep-operator/skep/runtime/job"
)

// publisher keeps one key as it should be.
type publisher struct {
	store kvstore.Client
	key   string
	value []byte
	loop  *reconcile.Loop[string]
	wrote time.Time // of the loop's worker
}

// The pauses after a failure.
const firstPause, longestPause = time.Second, 5 * time.Second

// pace is the least time between two writes: somebody else who insists on
// another value is not fought at full speed.
const pace = 10 * time.Second

func newPublisher(c Config, shared cluster.Config, store kvstore.Client, s reconcile.Scope) (*publisher, error) {
	value, err := encode(shared, c)
	if err != nil {
		return nil, fmt.Errorf("encoding the configuration of cluster %s: %w", shared.ClusterName, err)
	}
	p := &publisher{store: store, key: kvstore.Key(kvstore.ClusterConfigPrefix, shared.ClusterName), value: value}
	p.loop = reconcile.New(s, "publish", p.ensure, reconcile.Workers(1), reconcile.Pauses(firstPause, longestPause))
	return p, nil
}

func (p *publisher) publish() job.Job { return p.loop.Job() }

// watch has the key looked at when etcd is reached, and whenever the key changes.
func (p *publisher) watch() job.Job {
	return job.OneShot(func(ctx context.Context) error {
		for e := range p.store.Watch(ctx, p.key) {
			switch {
			case e.Kind == kvstore.Synced:
				p.loop.Add(p.key)
			case e.Key == p.key:
				p.loop.Add(p.key, k8s.Trigger{Kind: "EtcdKey", Name: e.Key, ResourceVersion: fmt.Sprint(e.ModRevision)})
			}
		}
		return ctx.Err()
	})
}

// ensure writes the key if it is not as it should be.
func (p *publisher) ensure(ctx context.Context, key string) error {
	if rest := pace - time.Since(p.wrote); rest > 0 {
		return reconcile.After(rest)
	}
	written, err := p.store.Ensure(ctx, key, p.value)
	if written {
		p.wrote = time.Now()
	}
	return err
}
