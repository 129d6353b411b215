// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lockgc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/runtime/job"
)

// sweeper looks at the locks again and again.
type sweeper struct {
	interval time.Duration
	store    kvstore.Client
	log      *slog.Logger
	metrics  *sweepMetrics
	loop     *reconcile.Loop[string]
	seen     holders // by the last run that saw them; of the loop's worker
}

// runLimit bounds one run.
const runLimit = 25 * time.Second

func newSweeper(c Config, store kvstore.Client, s reconcile.Scope, m *sweepMetrics) *sweeper {
	w := &sweeper{interval: c.KVStoreLockGCInterval, store: store, log: s.Log, metrics: m}
	// A failed run is no reason to look again sooner: two looks are an interval
	// apart.
	w.loop = reconcile.New(s, "sweep", w.sweep, reconcile.Workers(1), reconcile.Pauses(w.interval, w.interval))
	w.loop.Add(kvstore.IdentityLocksPrefix, k8s.Trigger{Kind: "Term", Name: s.Module.Term})
	return w
}

func (w *sweeper) job() job.Job {
	return job.OneShot(func(ctx context.Context) error {
		defer w.metrics.Held.Set(0)
		if err := w.store.AwaitConnected(ctx); err != nil {
			return err
		}
		return w.loop.Run(ctx)
	})
}

// sweep removes the locks that the last run has seen, and those whose lease is
// gone.
func (w *sweeper) sweep(ctx context.Context, prefix string) error {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	listing, err := w.store.List(ctx, kvstore.Folder(prefix), kvstore.KeysOnly())
	if err != nil {
		return err
	}
	stuck, fresh := split(w.seen, listing.Entries)
	removed := map[string]bool{}
	failed := w.remove(ctx, stuck, "held for too long", removed)
	orphans, unknown := w.orphans(ctx, fresh)
	failed = errors.Join(failed, unknown, w.remove(ctx, orphans, "its lease is gone", removed))
	w.seen = holdersOf(listing.Entries, removed)
	w.metrics.Held.Set(float64(len(w.seen)))
	if failed != nil {
		return failed
	}
	return reconcile.After(w.interval)
}

// orphans are locks whose lease does not exist: etcd owes their removal, and
// nobody will ask for it.
func (w *sweeper) orphans(ctx context.Context, fresh []kvstore.Entry) ([]kvstore.Entry, error) {
	var orphans []kvstore.Entry
	alive := map[kvstore.LeaseID]bool{0: true} // without a lease there is none to be gone
	for _, e := range fresh {
		if _, known := alive[e.Lease]; !known {
			lives, err := w.store.LeaseAlive(ctx, e.Lease)
			if err != nil {
				return orphans, err
			}
			alive[e.Lease] = lives
		}
		if !alive[e.Lease] {
			orphans = append(orphans, e)
		}
	}
	return orphans, nil
}

// remove deletes locks that are still as they were listed, and notes which are
// gone. One that cannot be deleted keeps no other; it is tried again by the next
// run.
func (w *sweeper) remove(ctx context.Context, locks []kvstore.Entry, why string, removed map[string]bool) error {
	var first error
	failures := 0
	for _, e := range locks {
		done, err := w.store.WriteIf(ctx, []kvstore.Guard{kvstore.Unchanged(e)}, kvstore.Remove(e.Key))
		switch {
		case err != nil:
			failures++
			if first == nil {
				first = err
			}
		case done:
			removed[e.Key] = true
			w.metrics.Swept.Inc()
			w.log.Warn("took a lock away", "key", e.Key, "lease", e.Lease.String(), "why", why)
		}
	}
	if failures > 0 {
		return fmt.Errorf("%d of %d locks could not be taken away: %w", failures, len(locks), first)
	}
	return nil
}
