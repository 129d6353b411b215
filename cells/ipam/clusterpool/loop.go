// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterpool

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/job"
)

var status = schema.GroupResource{Group: v2.GroupName, Resource: "ciliumnodes/status"}

// writers is how many nodes are written at once.
const writers = 16

// syncer feeds the allocator with CiliumNodes and writes what it decides.
type syncer struct {
	params
	loop *reconcile.Loop[string]

	mu sync.Mutex // guards Alloc; never held during a request
}

type params struct {
	cell.In

	Alloc    *allocator
	Nodes    stream.Resource[ciliumio.Node]
	Client   k8s.Client
	Handover k8s.Handover
	Scope    reconcile.Scope
	Metrics  *poolMetrics
	Log      *slog.Logger
}

func newSyncer(p params) *syncer {
	s := &syncer{params: p}
	s.loop = reconcile.New(p.Scope, "allocate", s.writeNode, reconcile.Workers(writers))
	return s
}

func (s *syncer) write() job.Job { return s.loop.Job() }
func (s *syncer) watch() job.Job { return job.OneShot(s.follow, job.Retry(time.Second, time.Minute)) }

// follow hands every change of a node to the allocator, and has those nodes
// written that it changes its mind about. What leaders before this one gave out
// is seen first.
func (s *syncer) follow(ctx context.Context) error {
	if err := stream.CatchUp(ctx, s.Nodes, s.Handover, v2.CiliumNodeResource); err != nil {
		return err
	}
	for e := range s.Nodes.Events(ctx, stream.Named("ipam.clusterpool"), stream.ChangesFirst()) {
		if e.Kind == stream.Sync {
			s.begin()
		} else {
			s.take(e)
		}
		e.Done(nil)
	}
	return ctx.Err()
}

func (s *syncer) take(e stream.Event[ciliumio.Node]) {
	s.mu.Lock()
	var names []string
	if e.Kind == stream.Delete {
		names = s.Alloc.remove(e.Key.Name)
	} else {
		names = s.Alloc.upsert(observe(e.Object))
	}
	names = slices.DeleteFunc(names, s.Alloc.content)
	s.Metrics.update(s.Alloc)
	s.mu.Unlock()
	trigger := k8s.Trigger{Kind: "CiliumNode", Name: e.Key.Name, ResourceVersion: e.Object.ResourceVersion.String()}
	for _, n := range names {
		s.loop.Add(n, trigger)
	}
}

// begin gives out blocks for the first time: all nodes have been seen.
func (s *syncer) begin() {
	s.mu.Lock()
	names := s.Alloc.begin()
	outside := s.Alloc.outside()
	names = slices.DeleteFunc(names, s.Alloc.content)
	total := len(s.Alloc.nodes)
	s.Metrics.update(s.Alloc)
	s.mu.Unlock()
	s.Log.Info("all nodes are known, giving out pod CIDRs", "nodes", total, "to write", len(names))
	if outside > 0 {
		s.Log.Warn("nodes have pod CIDRs outside the configured ones; they keep them, and the operator says so on each", "nodes", outside)
	}
	for _, n := range names {
		s.loop.Add(n, k8s.Trigger{Kind: "CiliumNode", Name: n})
	}
}

func observe(n *ciliumio.Node) observed {
	return observed{
		Name: n.Name, UID: n.UID.String(), Created: n.CreationTimestamp.Time(), Deleting: !n.DeletionTimestamp.IsZero(),
		PodCIDRs: n.Spec.IPAM.PodCIDRs, Error: n.Status.IPAM.OperatorStatus.Error,
	}
}

// want is what a node should say now, if that differs from what it says.
func (s *syncer) want(name string) (o observed, d desired, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Alloc.content(name) {
		return o, d, false
	}
	d, ok = s.Alloc.desired(name)
	return s.Alloc.nodes[name].observed, d, ok
}

// writeNode writes the difference: CIDRs first, then the error text.
func (s *syncer) writeNode(ctx context.Context, name string) error {
	o, d, ok := s.want(name)
	if !ok {
		return nil
	}
	ref := k8s.Ref{Resource: v2.CiliumNodeResource, Name: name}
	if d.PodCIDRs != nil {
		if err := s.modify(ctx, ref, o, func(u *unstructured.Unstructured) error { return setPodCIDRs(u, d.PodCIDRs) }); err != nil {
			return err
		}
	}
	if d.Error != o.Error {
		ref.Subresource = "status"
		return s.modify(ctx, ref, o, func(u *unstructured.Unstructured) error { return setError(u, d.Error) })
	}
	return nil
}

// modify changes a node that is still the one observed. One that is gone is not
// missed: its deletion is on its way.
func (s *syncer) modify(ctx context.Context, ref k8s.Ref, o observed, edit func(*unstructured.Unstructured) error) error {
	_, written, err := s.Client.Modify(ctx, ref, func(u *unstructured.Unstructured) error {
		if string(u.GetUID()) != o.UID {
			return nil
		}
		return edit(u)
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	s.Metrics.wrote(written, err)
	return err
}

// setPodCIDRs gives a node its CIDRs, unless it has got others meanwhile: a
// field that says something is never made to say something else.
func setPodCIDRs(u *unstructured.Unstructured, cidrs []string) error {
	has, _, err := unstructured.NestedStringSlice(u.Object, "spec", "ipam", "podCIDRs")
	if err != nil {
		return err
	}
	for _, h := range has {
		if !slices.Contains(cidrs, h) {
			return nil
		}
	}
	return unstructured.SetNestedStringSlice(u.Object, cidrs, "spec", "ipam", "podCIDRs")
}

func setError(u *unstructured.Unstructured, text string) error {
	if text == "" {
		unstructured.RemoveNestedField(u.Object, "status", "ipam", "operator-status", "error")
		return nil
	}
	return unstructured.SetNestedField(u.Object, text, "status", "ipam", "operator-status", "error")
}
