// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointgc

import (
	"context"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/resources/sweep"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/job"
)

// reaction is how long an endpoint looks like garbage before it is deleted: time
// for its agent to see to it.
const reaction = time.Minute

// collector deletes endpoints whose pod is gone or finished.
type collector struct {
	params
	sweep *sweep.Sweep[id, *ciliumio.Endpoint]
	adopt *reconcile.Loop[slim.Key]
	views views // of the sweep that runs
	stale int   // endpoints with a stale owner, of the last survey
}

type params struct {
	cell.In

	Config      Config
	API         *api
	Endpoints   stream.Resource[ciliumio.Endpoint]
	Pods        stream.Resource[slim.Pod]
	Nodes       stream.Resource[ciliumio.Node]
	Permissions *k8s.Permissions
	Sweep       sweep.Scope
	Reconcile   reconcile.Scope
	Metrics     *gcMetrics
	Log         *slog.Logger
}

func newCollector(p params) *collector {
	c := &collector{params: p}
	c.adopt = reconcile.New(p.Reconcile, "adopt", c.adoptOne)
	c.sweep = sweep.New(p.Sweep, sweep.Spec[id, *ciliumio.Endpoint]{
		Rule: "collect", Interval: p.Config.CiliumEndpointGCInterval, Grace: min(reaction, p.Config.CiliumEndpointGCInterval),
		Scan: c.scan, Check: c.check, Delete: c.delete,
		Trigger: func(e *ciliumio.Endpoint) k8s.Trigger { return trigger(e.Key(), e.ResourceVersion.String()) },
	})
	return c
}

func (c *collector) sweepJob() job.Job { return job.OneShot(c.run) }
func (c *collector) watchJob() job.Job { return job.OneShot(c.watch) }
func (c *collector) adoptJob() job.Job { return c.adopt.Job() }

func (c *collector) run(ctx context.Context) (err error) {
	if c.views, err = c.open(ctx); err != nil {
		return err
	}
	defer c.Metrics.odd(oddities{})
	return c.sweep.Run(ctx)
}

// watch has endpoints looked at soon after pods end.
func (c *collector) watch(ctx context.Context) error {
	for batch := range c.Pods.Batches(ctx, 256, 0, stream.Named("endpointgc")) {
		for _, e := range batch {
			if e.Kind == stream.Delete || e.Kind == stream.Upsert && podCondition(e.Object.Status.Phase.String()) == finished {
				c.sweep.Soon()
				break
			}
		}
		batch.Done(nil)
	}
	return ctx.Err()
}

func (c *collector) scan(context.Context) (sweep.Found[id, *ciliumio.Endpoint], error) {
	found, odd := c.views.survey(time.Now(), c.Config.CiliumEndpointGCInterval)
	c.tell(odd)
	for _, e := range odd.stale {
		c.adopt.Add(e.Key(), trigger(e.Key(), e.ResourceVersion.String()))
	}
	return found, nil
}

// tell reports oddities, in the log when they begin.
func (c *collector) tell(odd oddities) {
	c.Metrics.odd(odd)
	if len(odd.stale) > 0 && c.stale == 0 {
		c.Log.Warn("CiliumEndpoints are owned by an earlier pod of the name of theirs; Kubernetes deletes such endpoints, and agents may not make them anew",
			"endpoints", len(odd.stale), "one of them", odd.stale[0].Key().String())
	}
	c.stale = len(odd.stale)
}

// check asks the API server, not the views, which may miss a pod that is there.
func (c *collector) check(ctx context.Context, e *ciliumio.Endpoint) (garbage bool, err error) {
	garbage, _, err = judge(e, c.API.look(ctx))
	return garbage, err
}

// delete deletes the endpoint as it was judged: an agent that takes it over for a
// new pod writes it.
func (c *collector) delete(ctx context.Context, e *ciliumio.Endpoint) (sweep.Outcome, error) {
	return c.API.delete(ctx, e.Key(), metav1.Preconditions{UID: ptr.To(e.UID.API()), ResourceVersion: ptr.To(e.ResourceVersion.String())})
}
