// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointgc

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/pager"
	"k8s.io/utils/ptr"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/resources/sweep"
	"github.com/skep-operator/skep/runtime/job"
)

// cleaner deletes all endpoints, once. It watches nothing: where agents make no
// endpoints, there is nothing to watch.
type cleaner struct {
	api      *api
	list     metadata.Getter
	sweep    *sweep.Sweep[types.UID, leftover]
	progress *progress
	log      *slog.Logger
}

// progress is what outlives terms: once is once in a process.
type progress struct{ done atomic.Bool }

func newProgress() *progress { return &progress{} }

// leftover is an endpoint that has to go.
type leftover struct {
	key slim.Key
	uid types.UID
}

func newCleaner(a *api, s sweep.Scope, p *progress, log *slog.Logger) (job.Job, error) {
	lister, err := metadata.NewForConfig(a.client.RESTConfig())
	if err != nil {
		return job.Job{}, err
	}
	c := &cleaner{api: a, list: lister.Resource(endpoints), progress: p, log: log}
	c.sweep = sweep.New(s, sweep.Spec[types.UID, leftover]{
		Rule: "clean up", Everything: true, Scan: c.scan, Delete: c.delete,
		Trigger: func(l leftover) k8s.Trigger { return trigger(l.key, "") },
	})
	return job.OneShot(c.run, job.Retry(time.Second, time.Minute)), nil
}

func (c *cleaner) run(ctx context.Context) error {
	if c.progress.done.Load() {
		return nil
	}
	err := c.clean(ctx)
	c.progress.done.Store(err == nil)
	return err
}

func (c *cleaner) clean(ctx context.Context) error {
	_, err := c.api.client.Get(ctx, k8s.Ref{Resource: definitions, Name: endpoints.GroupResource().String()})
	if sweep.Missing(err) {
		c.log.Info("there is no definition of CiliumEndpoints, so none are left over")
		return nil
	}
	if err != nil {
		return err
	}
	return c.sweep.Run(ctx)
}

// scan lists what there is, page by page. Each endpoint has to go.
func (c *cleaner) scan(ctx context.Context) (found sweep.Found[types.UID, leftover], err error) {
	pages := pager.New(func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		return c.list.List(ctx, opts)
	})
	err = pages.EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
		m := obj.(*metav1.PartialObjectMetadata)
		found.Total++
		found.Candidates = append(found.Candidates, sweep.Candidate[types.UID, leftover]{
			Key: m.UID, Object: leftover{slim.Key{Namespace: m.Namespace, Name: m.Name}, m.UID}, Why: "agents make no endpoints",
		})
		return nil
	})
	return found, err
}

func (c *cleaner) delete(ctx context.Context, l leftover) (sweep.Outcome, error) {
	return c.api.delete(ctx, l.key, metav1.Preconditions{UID: ptr.To(l.uid)})
}
