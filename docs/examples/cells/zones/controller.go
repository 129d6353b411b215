// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package zones

import (
	"context"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
)

// region controller

// controller writes the zone of each Node to its CiliumNode.
type controller struct {
	params
	nodes       *stream.Store[slim.Node]
	ciliumNodes *stream.Store[ciliumNode]
}

type params struct {
	cell.In

	Config      Config
	Nodes       stream.Resource[slim.Node]
	CiliumNodes stream.Resource[ciliumNode]
	Client      k8s.Client
	Metrics     *zoneMetrics
}

func newController(p params) *controller { return &controller{params: p} }

// Open is called before anything is watched.
func (c *controller) Open(ctx context.Context) (err error) {
	if c.nodes, err = c.Nodes.Store(ctx); err != nil {
		return err
	}
	c.ciliumNodes, err = c.CiliumNodes.Store(ctx)
	return err
}

// nodeChanged is the CiliumNode that a change of a Node concerns.
func (*controller) nodeChanged(ch stream.Change[slim.Node]) []slim.Key {
	return []slim.Key{{Name: ch.Key.Name}}
}

// endregion

// region reconcile

// Reconcile writes the zone of a CiliumNode if it has another one.
func (c *controller) Reconcile(ctx context.Context, key slim.Key) (reconcile.Result, error) {
	node, isNode := c.nodes.Get(key)
	ciliumNode, isCiliumNode := c.ciliumNodes.Get(key)
	if !isNode || !isCiliumNode {
		return reconcile.Result{Reason: "none: the Node or the CiliumNode does not exist"}, nil
	}
	zone, differs := desired(c.Config.ZoneLabel, node, ciliumNode)
	if !differs {
		return reconcile.Result{}, nil
	}
	ref := k8s.Ref{Resource: v2.CiliumNodeResource, Name: key.Name}
	written, err := k8s.Update(ctx, c.Client, ref, func(n *v2.CiliumNode) error {
		setZone(n, zone)
		return nil
	})
	if written {
		c.Metrics.Written.Inc()
	}
	return reconcile.Result{}, err
}

// endregion
