// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"context"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/pager"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/sweep"
	"github.com/skep-operator/skep/runtime/job"
)

// sweepsPerGrace is how often slices are looked at while they are left alone.
const sweepsPerGrace = 24

// cleaner deletes the slices that are left when slices are switched off. Agents
// that were not restarted since still live on them, so it takes its time: a slice
// that was deleted too early costs them all connections, one that stays costs
// nothing but its room.
type cleaner struct {
	client      k8s.Client
	list        metadata.Getter
	permissions *k8s.Permissions
	sweep       *sweep.Sweep[leftover, leftover]
	pause       time.Duration // before the first sweep
	end         func()        // ends the sweeps
	progress    *cleanProgress
}

// leftover is a slice in the state in which it was seen: one that is written
// meanwhile is another, and was not left alone.
type leftover struct {
	name     string
	uid      types.UID
	revision string
}

// cleanProgress is what outlives terms: that there is nothing left.
type cleanProgress struct{ done atomic.Bool }

func newCleanProgress() *cleanProgress { return &cleanProgress{} }

func newCleaner(conf Config, client k8s.Client, p *k8s.Permissions, s sweep.Scope, progress *cleanProgress) (job.Job, error) {
	lister, err := metadata.NewForConfig(client.RESTConfig())
	if err != nil {
		return job.Job{}, err
	}
	c := &cleaner{
		client: client, list: lister.Resource(resource), permissions: p, progress: progress,
		pause: conf.CESCleanupGrace / sweepsPerGrace,
	}
	c.sweep = sweep.New(s, sweep.Spec[leftover, leftover]{
		Rule: "clean up", Interval: c.pause, Grace: conf.CESCleanupGrace, Everything: true,
		Scan: c.scan, Delete: c.delete,
		Trigger: func(l leftover) k8s.Trigger {
			return k8s.Trigger{Kind: "CiliumEndpointSlice", Name: l.name, ResourceVersion: l.revision}
		},
	})
	return job.OneShot(c.run), nil
}

// run sweeps until nothing is left. A term begins without a request, and so does
// one in which nothing was found before.
func (c *cleaner) run(ctx context.Context) error {
	if c.progress.done.Load() {
		return nil
	}
	select {
	case <-time.After(c.pause):
	case <-ctx.Done():
		return ctx.Err()
	}
	for !c.allowed() {
		if c.permissions.Known() || !job.Sleep(ctx, c.pause) {
			return ctx.Err()
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.end = cancel
	if err := c.sweep.Run(ctx); !c.progress.done.Load() {
		return err
	}
	return nil
}

// allowed reports whether it is known that the role allows it. Roles of clusters that
// never had slices do not.
func (c *cleaner) allowed() bool {
	ref := k8s.Ref{Resource: resource}
	return c.permissions.Allows("list", ref) && c.permissions.Allows("delete", ref) &&
		c.permissions.Allows("get", k8s.Ref{Resource: definitions, Name: resource.GroupResource().String()})
}

// scan lists the slices that there are, page by page.
func (c *cleaner) scan(ctx context.Context) (found sweep.Found[leftover, leftover], err error) {
	_, err = c.client.Get(ctx, k8s.Ref{Resource: definitions, Name: resource.GroupResource().String()})
	if sweep.Missing(err) {
		c.finish()
		return found, nil
	}
	if err != nil {
		return found, err
	}
	pages := pager.New(func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		return c.list.List(ctx, opts)
	})
	err = pages.EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
		m := obj.(*metav1.PartialObjectMetadata)
		l := leftover{m.Name, m.UID, m.ResourceVersion}
		found.Total++
		found.Candidates = append(found.Candidates, sweep.Candidate[leftover, leftover]{Key: l, Object: l, Why: "slices are switched off"})
		return nil
	})
	if err == nil && found.Total == 0 {
		c.finish()
	}
	return found, err
}

func (c *cleaner) finish() {
	c.progress.done.Store(true)
	c.end()
}

func (c *cleaner) delete(ctx context.Context, l leftover) (sweep.Outcome, error) {
	return sweep.OutcomeOf(c.client.Delete(ctx, k8s.Ref{Resource: resource, Name: l.name}, k8s.Preconditions{UID: l.uid, ResourceVersion: l.revision}))
}
