// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodeips

import (
	"context"

	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
)

// controller decides the key of each Node.
type controller struct {
	params
	nodes *stream.Store[slim.Node]
}

type params struct {
	cell.In

	Nodes stream.Resource[slim.Node]
}

func newController(p params) *controller { return &controller{params: p} }

// Open is called before anything is watched.
func (c *controller) Open(ctx context.Context) (err error) {
	c.nodes, err = c.Nodes.Store(ctx)
	return err
}

// region desired

// Desired is the value of a Node's key. What cannot be decoded keeps its key.
func (c *controller) Desired(key slim.Key) (value []byte, known bool) {
	node, exists := c.nodes.Get(key)
	if !exists {
		return nil, !c.nodes.Hides(key)
	}
	return addresses(node), true
}

// endregion
