// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package heartbeat

import (
	"context"
	"time"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/runtime/job"
)

// beater writes the heartbeat, again and again.
type beater struct {
	interval time.Duration
	store    kvstore.Client
	metrics  *beatMetrics
	loop     *reconcile.Loop[string]
}

// The pauses after a failure. The longest bounds how long the heart stands still
// when an outage is over; readers miss it after two minutes.
const firstPause, longestPause = time.Second, 3 * time.Second

// attemptLimit bounds one attempt.
const attemptLimit = 25 * time.Second

func newBeater(c Config, store kvstore.Client, s reconcile.Scope, m *beatMetrics) *beater {
	b := &beater{interval: c.KVStoreHeartbeatInterval, store: store, metrics: m}
	b.loop = reconcile.New(s, "beat", b.beat, reconcile.Workers(1), reconcile.Pauses(firstPause, longestPause))
	b.loop.Add(kvstore.HeartbeatKey, k8s.Trigger{Kind: "Term", Name: s.Module.Term})
	return b
}

// job beats from the moment that etcd is reached. Until then there is nothing
// that could fail.
func (b *beater) job() job.Job {
	return job.OneShot(func(ctx context.Context) error {
		if err := b.store.AwaitConnected(ctx); err != nil {
			return err
		}
		return b.loop.Run(ctx)
	})
}

// beat writes the heartbeat, whatever stands there: readers wait for the event.
func (b *beater) beat(ctx context.Context, key string) error {
	attempt, cancel := context.WithTimeout(ctx, attemptLimit)
	defer cancel()
	if err := b.store.Write(attempt, kvstore.PutLeased(key, value(time.Now()))); err != nil {
		if ctx.Err() == nil {
			b.metrics.Failures.Inc()
		}
		return err
	}
	b.metrics.LastSuccess.SetToCurrentTime()
	return reconcile.After(b.interval)
}
