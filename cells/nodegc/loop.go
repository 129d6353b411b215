// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodegc

import (
	"context"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/resources/sweep"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/job"
)

// collector deletes CiliumNodes whose Node is gone.
type collector struct {
	params
	sweep       *sweep.Sweep[id, *ciliumio.Node]
	ciliumNodes *stream.Store[ciliumio.Node]
	nodes       *stream.Store[node]
}

type params struct {
	cell.In

	Config      Config
	CiliumNodes stream.Resource[ciliumio.Node]
	Nodes       stream.Resource[node]
	Client      k8s.Client
	Sweep       sweep.Scope
}

// id is a CiliumNode, and no later one of its name.
type id struct {
	name string
	uid  slim.UID
}

func newCollector(p params) *collector {
	c := &collector{params: p}
	c.sweep = sweep.New(p.Sweep, sweep.Spec[id, *ciliumio.Node]{
		Rule: "collect", Interval: p.Config.NodesGCInterval, Grace: p.Config.NodesGCInterval,
		Scan: c.scan, Check: c.check, Delete: c.delete,
		Trigger: func(n *ciliumio.Node) k8s.Trigger {
			return k8s.Trigger{Kind: "CiliumNode", Name: n.Name, ResourceVersion: n.ResourceVersion.String()}
		},
	})
	return c
}

func (c *collector) sweepJob() job.Job { return job.OneShot(c.run) }
func (c *collector) watchJob() job.Job { return job.OneShot(c.watch) }

func (c *collector) run(ctx context.Context) (err error) {
	if c.ciliumNodes, err = c.CiliumNodes.Store(ctx); err != nil {
		return err
	}
	if c.nodes, err = c.Nodes.Store(ctx); err != nil {
		return err
	}
	return c.sweep.Run(ctx)
}

// watch lets CiliumNodes start anew whose Node shows up between two looks.
func (c *collector) watch(ctx context.Context) error {
	for e := range c.Nodes.Events(ctx, stream.Named("nodegc")) {
		if e.Kind == stream.Upsert {
			c.sweep.Forget(func(i id) bool { return i.name == e.Key.Name })
		}
		e.Done(nil)
	}
	return ctx.Err()
}

// scan finds orphans. A cluster without any Node is none to draw conclusions from.
func (c *collector) scan(context.Context) (found sweep.Found[id, *ciliumio.Node], err error) {
	found.Total = c.ciliumNodes.Len()
	if c.nodes.Len() == 0 {
		return found, nil
	}
	hidden := map[slim.Key]bool{}
	for _, key := range c.nodes.Unreadable() {
		hidden[key] = true
	}
	for n := range c.ciliumNodes.All() {
		key := slim.Key{Name: n.Name}
		if _, ok := c.nodes.Get(key); ok || hidden[key] || !orphan(n) {
			continue
		}
		found.Candidates = append(found.Candidates, sweep.Candidate[id, *ciliumio.Node]{Key: id{n.Name, n.UID}, Object: n, Why: "its Node is gone"})
	}
	return found, nil
}

// check asks the API server, not the view, which may miss a Node that is there.
func (c *collector) check(ctx context.Context, n *ciliumio.Node) (garbage bool, err error) {
	_, err = c.Client.Get(ctx, k8s.Ref{Resource: nodes, Name: n.Name})
	if sweep.Missing(err) {
		return true, nil
	}
	return false, err
}

// delete deletes the CiliumNode as it was judged: somebody may have said since
// that it is wanted.
func (c *collector) delete(ctx context.Context, n *ciliumio.Node) (sweep.Outcome, error) {
	ref := k8s.Ref{Resource: v2.CiliumNodeResource, Name: n.Name}
	return sweep.OutcomeOf(c.Client.Delete(ctx, ref, k8s.Preconditions{UID: n.UID.API(), ResourceVersion: n.ResourceVersion.String()}))
}
