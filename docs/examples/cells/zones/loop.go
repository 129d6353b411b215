// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package zones

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/job"
)

// region loop

// teller feeds the planner and writes what it decides.
type teller struct {
	params
	loop *reconcile.Loop[string]

	mu   sync.Mutex // guards plan; never held during a request
	plan *planner
}

type params struct {
	cell.In

	Config      Config
	Nodes       stream.Resource[slim.Node]
	CiliumNodes stream.Resource[ciliumNode]
	Client      k8s.Client
	Scope       reconcile.Scope
	Metrics     *zoneMetrics
}

func newTeller(p params) *teller {
	t := &teller{params: p, plan: newPlanner()}
	t.loop = reconcile.New(p.Scope, "tell", t.tell)
	return t
}

func (t *teller) write() job.Job          { return t.loop.Job() }
func (t *teller) seeNodes() job.Job       { return stream.Observe(t.Nodes, t.seeNode) }
func (t *teller) seeCiliumNodes() job.Job { return stream.Observe(t.CiliumNodes, t.seeCiliumNode) }

func (t *teller) seeNode(_ context.Context, e stream.Event[slim.Node]) {
	note(t, "Node", e, t.plan.zones, func(n *slim.Node) string { return n.Labels.Get(t.Config.ZoneLabel) })
}

func (t *teller) seeCiliumNode(_ context.Context, e stream.Event[ciliumNode]) {
	note(t, "CiliumNode", e, t.plan.told, func(n *ciliumNode) string { return n.Annotations.Get(annotation) })
}

// note takes note of an object in its half of the plan, and has the node looked
// at where there is something to do.
func note[T any](t *teller, kind string, e stream.Event[T], half map[string]string, value func(*T) string) {
	if e.Kind == stream.Sync {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	name := e.Key.Name
	if e.Kind == stream.Delete {
		delete(half, name)
	} else {
		half[name] = value(e.Object)
	}
	if _, ok := t.plan.desired(name); ok {
		t.loop.Add(name, k8s.Trigger{Kind: kind, Name: name, ResourceVersion: slim.MetaOf(e.Object).ResourceVersion.String()})
	}
}

// endregion

// region write

// tell writes what a CiliumNode should say, if that differs from what it says.
func (t *teller) tell(ctx context.Context, name string) error {
	t.mu.Lock()
	zone, ok := t.plan.desired(name)
	t.mu.Unlock()
	if !ok {
		return nil
	}
	ref := k8s.Ref{Resource: v2.CiliumNodeResource, Name: name}
	_, written, err := t.Client.Modify(ctx, ref, func(u *unstructured.Unstructured) error {
		if zone == "" {
			unstructured.RemoveNestedField(u.Object, "metadata", "annotations", annotation)
			return nil
		}
		return unstructured.SetNestedField(u.Object, zone, "metadata", "annotations", annotation)
	})
	if apierrors.IsNotFound(err) {
		return nil // its deletion is on its way
	}
	if written {
		t.Metrics.Told.Inc()
	}
	return err
}

// endregion
