// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package doublewrite

import (
	"context"
	"log/slog"
	"time"

	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/runtime/cell"
)

// controller compares at an interval.
type controller struct {
	params
	queue *reconcile.Queue[string]
	store *stream.Store[ciliumio.Identity]
	last  *report // of the queue's worker; nil before the first
}

type params struct {
	cell.In

	Config     Config
	Identities stream.Resource[ciliumio.Identity]
	Store      kvstore.Client
	Reconcile  reconcile.Deps
	Metrics    *reportMetrics
	Log        *slog.Logger
}

func newController(p params) *controller {
	c := &controller{params: p}
	opts := []reconcile.Option{
		reconcile.Workers(1), reconcile.AwaitReady(p.Store.AwaitConnected), reconcile.Backoff(time.Second, time.Minute),
	}
	if interval := p.Config.DoubleWriteMetricReporterInterval; interval > 0 {
		c.queue = reconcile.Periodic(p.Reconcile, "compare", kvstore.IdentitiesPrefix, interval, c.compare, opts...)
		return c
	}
	c.queue = reconcile.NewQueue(p.Reconcile, "compare", c.compare, opts...)
	c.queue.Add(kvstore.IdentitiesPrefix, p.Reconcile.TermTrigger())
	return c
}

func (c *controller) run(ctx context.Context) (err error) {
	if c.store, err = c.Identities.Store(ctx); err != nil {
		return err
	}
	return c.queue.Run(ctx)
}

// compare compares the keys with the objects, and sets the metrics. A failed listing changes none.
func (c *controller) compare(ctx context.Context, prefix string) error {
	keys, err := c.Store.List(ctx, kvstore.Folder(prefix), kvstore.KeysOnly(), kvstore.UpTo(kvstore.LongestLabels))
	if err != nil {
		return err
	}
	r := compare(c.names, keys.Entries)
	c.Metrics.set(r)
	c.report(r)
	return nil
}

func (c *controller) names(yield func(string) bool) {
	for i := range c.store.All() {
		if !yield(i.Name) {
			return
		}
	}
}

// report logs a comparison that differs from the last one.
func (c *controller) report(r report) {
	before := c.last
	c.last = &r
	if len(r.misnamed) > 0 && (before == nil || len(before.misnamed) == 0) {
		c.Log.Warn("ignoring identities whose names are no numbers", "identities", len(r.misnamed), "example", r.misnamed[0])
	}
	switch {
	case before != nil && !r.differs(*before):
	case r.equal():
		c.Log.Info("identities in the kvstore and CiliumIdentities are the same", "identities", r.crdTotal)
	default:
		c.Log.Info("identities in the kvstore and CiliumIdentities differ", "crdTotal", r.crdTotal, "kvstoreTotal", r.kvstoreTotal,
			"crdOnly", len(r.crdOnly), "kvstoreOnly", len(r.kvstoreOnly),
			"crdOnlySamples", samples(r.crdOnly), "kvstoreOnlySamples", samples(r.kvstoreOnly))
	}
}
