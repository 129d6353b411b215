// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointgc

import (
	"context"
	"log/slog"
	"time"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/resources/sweep"
	"github.com/skep-operator/skep/runtime/cell"
)

// gracePeriod is the minimum time from the first sighting of garbage to its deletion, in which its agent may delete it.
const gracePeriod = time.Minute

// workers is the number of concurrent deletes: with fewer a slow API server would have fewer deletes in a second than are allowed, and the next scan wait.
const workers = 4

// controller deletes endpoints whose pod is gone or finished.
type controller struct {
	params
	sweep     *sweep.Sweep[id, *ciliumio.Endpoint]
	ownerUIDs *reconcile.Queue[slim.Key]
	stores    stores // of the running sweep
	stale     int    // endpoints with a stale owner, as of the last scan
}

type params struct {
	cell.In

	Config      Config
	API         *api
	Endpoints   stream.Resource[ciliumio.Endpoint]
	Pods        stream.Resource[slim.Pod]
	Nodes       stream.Resource[ciliumio.Node]
	Permissions *k8s.Permissions
	Sweep       sweep.Deps
	Reconcile   reconcile.Deps
	Metrics     *gcMetrics
	Log         *slog.Logger
}

func newController(p params) *controller {
	c := &controller{params: p}
	c.ownerUIDs = reconcile.NewQueue(p.Reconcile, "adopt", c.fixOwnerUID)
	c.sweep = sweep.New(p.Sweep, sweep.Spec[id, *ciliumio.Endpoint]{
		Rule: "collect", Interval: p.Config.CiliumEndpointGCInterval, Grace: min(gracePeriod, p.Config.CiliumEndpointGCInterval),
		Workers: workers, Scan: c.scan, Check: c.check, Delete: c.delete,
		Namespace: func(e *ciliumio.Endpoint) string { return e.Namespace.String() },
		Trigger:   func(e *ciliumio.Endpoint) k8s.Trigger { return trigger(e.Key(), e.ResourceVersion.String()) },
	})
	return c
}

func (c *controller) runOwnerUIDs(ctx context.Context) error { return c.ownerUIDs.Run(ctx) }

func (c *controller) run(ctx context.Context) (err error) {
	if c.stores, err = c.open(ctx); err != nil {
		return err
	}
	return c.sweep.Run(ctx)
}

// watch requests a sweep after a pod ends.
func (c *controller) watch(ctx context.Context) error {
	for batch := range c.Pods.Changes(ctx) {
		for _, change := range batch.Changes {
			if change.Kind == stream.Delete || podState(change.Object.Status.Phase.String()) == finished {
				c.sweep.Kick()
				break
			}
		}
	}
	return ctx.Err()
}

func (c *controller) scan(context.Context) (sweep.Found[id, *ciliumio.Endpoint], error) {
	found, anomalies := c.stores.scan(time.Now(), c.Config.CiliumEndpointGCInterval)
	c.reportAnomalies(anomalies)
	for _, e := range anomalies.stale {
		c.ownerUIDs.Add(e.Key(), trigger(e.Key(), e.ResourceVersion.String()))
	}
	return found, nil
}

// reportAnomalies sets the metrics, and logs the first endpoints with a stale owner.
func (c *controller) reportAnomalies(found anomalies) {
	c.Metrics.setAnomalies(found)
	if len(found.stale) > 0 && c.stale == 0 {
		c.Log.Warn("ownerReferences of CiliumEndpoints have the uid of a deleted pod of the same name, so Kubernetes will delete them",
			"endpoints", len(found.stale), "example", found.stale[0].Key().String())
	}
	c.stale = len(found.stale)
}

// check reads owners from the API server, as stores may miss a pod that exists.
func (c *controller) check(ctx context.Context, e *ciliumio.Endpoint) (garbage bool, err error) {
	garbage, _, err = isGarbage(e, c.API.ownerState(ctx))
	return garbage, err
}

// delete deletes the endpoint unless it was written since: an agent that reuses it for a new pod updates it.
func (c *controller) delete(ctx context.Context, e *ciliumio.Endpoint) (sweep.Outcome, error) {
	return c.API.delete(ctx, e.Key(), k8s.Preconditions{UID: e.UID.API(), ResourceVersion: e.ResourceVersion.String()})
}
