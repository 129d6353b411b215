// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lockgc

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/runtime/cell"
)

// controller checks the locks at an interval.
type controller struct {
	params
	queue *reconcile.Queue[string]
	seen  holders // by the last complete run; of the queue's worker
	large int     // locks whose keys are too large, in the last complete run; of the queue's worker
}

type params struct {
	cell.In

	Config    Config
	Store     kvstore.Client
	Log       *slog.Logger
	Reconcile reconcile.Deps
	Metrics   *sweepMetrics
}

// runLimit bounds one run.
const runLimit = 25 * time.Second

func newController(p params) *controller {
	c := &controller{params: p}
	interval := p.Config.KVStoreLockGCInterval
	// The back-off is the interval, too: two sightings of a holder are an interval apart.
	c.queue = reconcile.Periodic(p.Reconcile, "sweep", kvstore.IdentityLocksPrefix, interval, c.sweep,
		reconcile.AwaitReady(p.Store.AwaitConnected), reconcile.Timeout(runLimit), reconcile.Backoff(interval, interval))
	return c
}

func (c *controller) run(ctx context.Context) error { return c.queue.Run(ctx) }

// sweep deletes the locks that the last run has seen, and those whose lease does not exist.
func (c *controller) sweep(ctx context.Context, prefix string) error {
	listing, err := c.Store.List(ctx, kvstore.Folder(prefix), kvstore.KeysOnly(), kvstore.UpTo(kvstore.LongestLabels))
	if err != nil {
		return err
	}
	listing.Entries = c.withoutLarge(listing.Entries)
	stuck, fresh := split(c.seen, listing.Entries)
	deleted := map[string]bool{}
	failed := c.deleteLocks(ctx, stuck, "held for too long", deleted)
	orphans, unknown := c.orphans(ctx, fresh)
	failed = errors.Join(failed, unknown, c.deleteLocks(ctx, orphans, "its lease is gone", deleted))
	c.seen = holdersOf(listing.Entries, deleted)
	c.Metrics.Held.Set(float64(len(c.seen)))
	return failed
}

// withoutLarge leaves out the locks whose keys are not known as a whole. They end with their leases.
func (c *controller) withoutLarge(all []kvstore.Entry) []kvstore.Entry {
	var large []kvstore.Entry
	all = slices.DeleteFunc(all, func(e kvstore.Entry) bool {
		if e.IsLarge {
			large = append(large, e)
		}
		return e.IsLarge
	})
	if len(large) > 0 && c.large == 0 {
		c.Log.Warn("ignoring locks with keys that are too large", "keys", len(large), "example", large[0].Key)
	}
	c.large = len(large)
	return all
}

// orphans are locks whose lease does not exist: etcd failed to delete them with it.
func (c *controller) orphans(ctx context.Context, fresh []kvstore.Entry) ([]kvstore.Entry, error) {
	var orphans []kvstore.Entry
	alive := map[kvstore.LeaseID]bool{0: true} // no lease
	for _, e := range fresh {
		if _, known := alive[e.Lease]; !known {
			exists, err := c.Store.LeaseAlive(ctx, e.Lease)
			if err != nil {
				return orphans, err
			}
			alive[e.Lease] = exists
		}
		if !alive[e.Lease] {
			orphans = append(orphans, e)
		}
	}
	return orphans, nil
}

// maxLines is how many locks are named that a run deletes for one reason: one agent may write any number of them.
const maxLines = 100

// deleteLocks deletes locks that are unchanged since they were listed, and adds them to deleted. The next run retries what
// fails.
func (c *controller) deleteLocks(ctx context.Context, locks []kvstore.Entry, reason string, deleted map[string]bool) error {
	removals := make([]kvstore.Removal, len(locks))
	for i, e := range locks {
		removals[i] = kvstore.Removal{Key: e.Key, Guards: []kvstore.Guard{kvstore.Unchanged(e)}}
	}
	removed, err := c.Store.RemoveEach(ctx, removals)
	count := 0
	for i, done := range removed {
		if e := locks[i]; done {
			deleted[e.Key] = true
			c.Metrics.Swept.Inc()
			if count++; count <= maxLines {
				c.Log.Warn("deleted identity lock", "key", e.Key, "lease", e.Lease.String(), "reason", reason)
			}
		}
	}
	if count > maxLines {
		c.Log.Warn("deleted more identity locks", "locks", count-maxLines, "reason", reason)
	}
	return err
}
