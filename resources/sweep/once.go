// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package sweep

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/pager"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// Cleanup says which custom resources Once deletes: all of a kind that is not in use any more.
type Cleanup struct {
	Resource schema.GroupVersionResource
	Kind     string // of Resource, for causes
	Why      string // for the log
	// Interval and Grace are as in Spec. Without an interval one sweep that succeeds is enough. With one, sweeps go
	// on until no object exists, and an object that was written meanwhile is a candidate anew.
	Interval, Grace time.Duration
	Propagation     metav1.DeletionPropagation
	// Ready, if set, returns when the first sweep may start. False is that there is none in this term.
	Ready func(context.Context) bool
	// Deleted, if set, is called with the outcome of each delete.
	Deleted func(Outcome)
}

// completed are the clean-ups that have succeeded, by module: once is once in a process, whatever the number of terms.
type completed struct{ sync.Map }

func newCompleted() *completed { return &completed{} }

type once struct {
	Cleanup
	client k8s.Client
	list   metadata.Getter
	deps   Deps
	sweep  *Sweep[remnant, remnant]
	end    func() // ends the sweeps
}

// remnant is an object that is to be deleted.
type remnant struct {
	slim.Key
	uid      types.UID
	revision string // with an interval
}

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// Once returns the run of a clean-up, which is the only one of its module. It lists, page by page, and watches nothing.
func Once(s Deps, client k8s.Client, c Cleanup) (run func(context.Context) error, err error) {
	lister, err := metadata.NewForConfig(client.RESTConfig())
	if err != nil {
		return nil, err
	}
	if s.completed == nil {
		s.completed = newCompleted()
	}
	o := &once{Cleanup: c, client: client, list: lister.Resource(c.Resource), deps: s}
	o.sweep = New(s, Spec[remnant, remnant]{
		Rule: "clean up", Interval: c.Interval, Grace: c.Grace, NoSafetyLimit: true, Scan: o.scan, Delete: o.delete,
		Trigger: func(r remnant) k8s.Trigger {
			return k8s.Trigger{Kind: c.Kind, Namespace: r.Namespace, Name: r.Name, ResourceVersion: r.revision}
		},
	})
	return o.run, nil
}

func (o *once) run(ctx context.Context) error {
	if o.isCompleted() {
		return nil
	}
	if o.Ready != nil && !o.Ready(ctx) {
		return ctx.Err()
	}
	ctx, o.end = context.WithCancel(ctx)
	defer o.end()
	err := o.sweep.Run(ctx)
	if err == nil {
		o.complete()
	}
	if o.isCompleted() {
		return nil
	}
	return err
}

func (o *once) isCompleted() bool {
	_, is := o.deps.completed.Load(o.deps.Module.ID)
	return is
}

func (o *once) complete() {
	o.deps.completed.Store(o.deps.Module.ID, true)
	o.end()
}

func (o *once) scan(ctx context.Context) (found Found[remnant, remnant], err error) {
	crd := k8s.Ref{Resource: definitions, Name: o.Resource.GroupResource().String()}
	_, err = o.client.Get(ctx, crd)
	if k8s.IsNotFound(err, crd) {
		o.deps.Log.Info("nothing to delete, the CRD does not exist", "crd", crd.Name)
		o.complete()
		return found, nil
	}
	if err != nil {
		return found, err
	}
	pages := pager.New(func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		return o.list.List(ctx, opts)
	})
	err = pages.EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
		m := obj.(*metav1.PartialObjectMetadata)
		r := remnant{Key: slim.Key{Namespace: m.Namespace, Name: m.Name}, uid: m.UID}
		if o.Interval > 0 {
			r.revision = m.ResourceVersion
		}
		found.Total++
		found.Candidates = append(found.Candidates, Candidate[remnant, remnant]{
			Key: r, Object: r, Why: o.Why, Terminating: m.DeletionTimestamp != nil,
		})
		return nil
	})
	if err == nil && found.Total == 0 && o.Interval > 0 {
		o.complete()
	}
	return found, err
}

func (o *once) delete(ctx context.Context, r remnant) (Outcome, error) {
	ref := k8s.Ref{Resource: o.Resource, Namespace: r.Namespace, Name: r.Name}
	outcome, err := OutcomeOf(o.client.Delete(ctx, ref, k8s.Preconditions{
		UID: r.uid, ResourceVersion: r.revision, Propagation: o.Propagation,
	}), ref)
	if o.Deleted != nil {
		o.Deleted(outcome)
	}
	return outcome, err
}
