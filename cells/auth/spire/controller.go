// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"context"
	"iter"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/sweep"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
)

// controller compares the entries at the server with the identities, one attempt at a time: all of them at the start, at an
// interval and after each failure, and in between those of identities that changed.
type controller struct {
	params
	interval time.Duration
	own      identity.Range // entries of other numbers belong to other clusters
	queue    *reconcile.Queue[string]

	ignored atomic.Int64 // CiliumIdentities without a number

	mu       sync.Mutex
	due      map[identity.Number]bool // changed since the last attempt
	reported map[identity.Number]bool // deleted in etcd, and their entries may exist

	// Of the queue's worker:
	at       entries   // at the server; nil: unknown
	compared time.Time // when all were
	stale    []removal // found by the last comparison, and not confirmed yet
	refused  map[identity.Number]refusal
}

type params struct {
	cell.In

	Cluster    cluster.Config
	Sweep      sweep.Config
	Identities *identities `optional:"true"` // nil: identities are not kept as objects
	Server     *server
	Deps       reconcile.Deps
	Metrics    *entryMetrics
	Health     health.Reporter
	Log        *slog.Logger
}

const (
	// key is the only key of the queue.
	key = "entries"
	// interval is the time between comparisons of all entries: the server may lose them.
	interval = time.Hour
	// maxChanges is the number of changes of an attempt, which health reports if it takes long.
	maxChanges = 2000
)

func newController(p params) *controller {
	c := &controller{
		params: p, interval: interval, own: identity.RangeOf(p.Cluster.ClusterID, p.Cluster.MaxConnectedClusters),
		due: map[identity.Number]bool{}, reported: map[identity.Number]bool{}, refused: map[identity.Number]refusal{},
	}
	c.queue = reconcile.NewQueue(p.Deps, "register", c.register, reconcile.Workers(1), reconcile.Backoff(firstPause, longestPause), reconcile.HonorBackoff())
	return c
}

// run starts when all CiliumIdentities are known.
func (c *controller) run(ctx context.Context) error {
	defer c.Server.close()
	if c.Identities != nil {
		if err := c.Identities.open(ctx); err != nil {
			return err
		}
	}
	c.queue.Add(key, c.Deps.TermTrigger())
	return c.queue.Run(ctx)
}

// watch enqueues identities that change.
func (c *controller) watch(ctx context.Context) error {
	if c.Identities == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	misnamed := map[string]bool{}
	for batch := range c.Identities.stream.Changes(ctx) {
		for _, ch := range batch.Changes {
			n, ok := registered(ch.Key.Name)
			switch {
			case ok:
				c.enqueue(ciliumio.Identities.Trigger(ch.Object), n)
			case ch.Kind == stream.Delete:
				delete(misnamed, ch.Key.Name)
			case !misnamed[ch.Key.Name]:
				if misnamed[ch.Key.Name] = true; len(misnamed) == 1 {
					c.Log.Warn("ignoring CiliumIdentities whose names are no numbers of identities", "example", ch.Key.Name)
				}
			}
		}
		c.ignored.Store(int64(len(misnamed)))
		c.Metrics.Ignored.Set(float64(len(misnamed)))
	}
	return ctx.Err()
}

func (c *controller) enqueue(trigger k8s.Trigger, numbers ...identity.Number) {
	c.mu.Lock()
	for _, n := range numbers {
		c.due[n] = true
	}
	c.mu.Unlock()
	c.queue.Add(key, trigger)
}

// Deleted implements identity.Deletions. Where identities are objects, these decide.
func (c *controller) Deleted(numbers ...identity.Number) {
	if len(numbers) == 0 {
		return
	}
	if c.Identities == nil {
		c.mu.Lock()
		for _, n := range numbers {
			c.reported[n] = true
		}
		c.mu.Unlock()
	}
	c.enqueue(k8s.Trigger{Kind: "Identity", Name: numbers[len(numbers)-1].String()}, numbers...)
}

// state is what is known of an identity.
func (c *controller) state(n identity.Number) existence {
	if n < firstNumber {
		return unknown
	}
	if c.Identities != nil {
		return c.Identities.state(n)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reported[n] {
		return deleted
	}
	return unknown
}

// register brings the entries to what they should be. A failed call makes them unknown, so that all are compared then: its
// changes may have been made, and a server that returns may have lost others.
func (c *controller) register(ctx context.Context, _ string) error {
	began := c.now()
	more, err := c.makeSome(ctx, began)
	if err != nil {
		c.at = nil
		c.Server.close()
		return err
	}
	c.report()
	if more {
		return reconcile.RequeueAfter(time.Millisecond)
	}
	c.forgetReported()
	return reconcile.RequeueAfter(c.wait())
}

// makeSome makes up to maxChanges changes, and reports whether there are more: stale entries are deleted last.
func (c *controller) makeSome(ctx context.Context, now time.Time) (more bool, err error) {
	due := c.drain(now)
	if err := c.Server.open(ctx); err != nil {
		return false, err
	}
	if c.at == nil || !now.Before(c.compared.Add(c.interval)) {
		if due, err = c.compareAll(ctx); err != nil {
			return false, err
		}
	}
	some, rest := compare(due, c.state, c.at).split(maxChanges)
	if err := c.apply(ctx, some); err != nil {
		return false, err
	}
	maps.DeleteFunc(c.refused, func(_ identity.Number, r refusal) bool { return !now.Before(r.until) }) // there is nothing to do any more
	if len(rest) == 0 && len(c.stale) > 0 {
		if rest, err = c.confirm(ctx, c.stale); err != nil {
			return false, err
		}
		c.stale = nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range rest {
		c.due[n] = true
	}
	return len(rest) > 0, nil
}

func (c *controller) now() time.Time { return c.Deps.Plan.Now() }

// drain returns the identities that changed, and those whose refusals are over.
func (c *controller) drain(now time.Time) iter.Seq[identity.Number] {
	c.mu.Lock()
	defer c.mu.Unlock()
	due := c.due
	c.due = map[identity.Number]bool{}
	for n, r := range c.refused {
		if !now.Before(r.until) {
			due[n] = true
		}
	}
	return maps.Keys(due)
}

// wait is the time to the next attempt if no identity changes before.
func (c *controller) wait() time.Duration {
	next := c.compared.Add(c.interval)
	for _, r := range c.refused {
		if r.until.Before(next) {
			next = r.until
		}
	}
	return max(next.Sub(c.now()), time.Millisecond)
}

// forgetReported forgets deleted identities without entries.
func (c *controller) forgetReported() {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.reported, func(n identity.Number, _ bool) bool { return len(c.at[n]) == 0 })
}
