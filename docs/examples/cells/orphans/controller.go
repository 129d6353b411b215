// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package orphans

import (
	"context"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/resources/sweep"
	"github.com/skep-operator/skep/runtime/cell"
)

type params struct {
	cell.In

	Config Config
	Nodes  stream.Resource[slim.Node]
	Client k8s.Client
}

// controller deletes CiliumNodes whose Node does not exist.
type controller struct {
	params
	nodes *stream.Store[slim.Node]
}

func newController(p params) *controller { return &controller{params: p} }

// Open is called before the first scan.
func (c *controller) Open(ctx context.Context) (err error) {
	c.nodes, err = c.Nodes.Store(ctx)
	return err
}

// region decisions

// Policy says when garbage is deleted.
func (c *controller) Policy() sweep.Policy {
	return sweep.Policy{Interval: c.Config.OrphansInterval, Grace: c.Config.OrphansInterval, Fields: []string{"metadata.ownerReferences"}}
}

// Garbage decides by stores.
func (c *controller) Garbage(n *ciliumio.Node) (why string, garbage bool) {
	key := slim.Key{Name: n.Name}
	_, exists := c.nodes.Get(key)
	return "its Node does not exist", !exists && !c.nodes.Hides(key) && len(n.Owners) == 0
}

// Confirm asks the API server before each delete.
func (c *controller) Confirm(ctx context.Context, n *ciliumio.Node) (garbage bool, err error) {
	ref := k8s.Ref{Resource: stream.Nodes.Resource(), Name: n.Name}
	if _, err = c.Client.Get(ctx, ref); k8s.IsNotFound(err, ref) {
		return true, nil
	}
	return false, err
}

// endregion

// nodeAppeared has a CiliumNode start anew as a candidate.
func (*controller) nodeAppeared(ch stream.Change[slim.Node]) []slim.Key {
	if ch.Kind == stream.Delete {
		return nil
	}
	return []slim.Key{ch.Key}
}
