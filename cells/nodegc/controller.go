// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodegc

import (
	"context"
	"fmt"
	"strings"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/resources/sweep"
	"github.com/skep-operator/skep/runtime/cell"
)

// controller deletes CiliumNodes whose Node is gone.
type controller struct {
	params
	nodes *stream.Store[node]
}

type params struct {
	cell.In

	Config Config
	Nodes  stream.Resource[node]
	Client k8s.Client
}

func newController(p params) *controller { return &controller{params: p} }

func (c *controller) Open(ctx context.Context) (err error) {
	c.nodes, err = c.Nodes.Store(ctx)
	return err
}

func (c *controller) Policy() sweep.Policy {
	return sweep.Policy{
		Interval: c.Config.NodesGCInterval, Grace: c.Config.NodesGCInterval,
		Fields: []string{"metadata.ownerReferences", "metadata.annotations"},
	}
}

// keep is the annotation of CiliumNodes that have no Node on purpose.
const keep = "cilium.io/do-not-gc"

// orphan reports whether a CiliumNode without a Node is garbage. Kubernetes deletes one with owners itself.
func orphan(n *ciliumio.Node) bool {
	return len(n.Owners) == 0 && !strings.EqualFold(n.Annotations.Get(keep), "true")
}

// why says why a CiliumNode without a Node is garbage. An annotation that looks as if it were to be kept is named.
func why(n *ciliumio.Node) string {
	if value, set := n.Annotations.Lookup(keep); set {
		return fmt.Sprintf("its Node is gone, and its annotation %s is %.64q, which keeps it only if it is true", keep, value)
	}
	return "its Node is gone"
}

// Garbage is a CiliumNode without a Node. A cluster without any Node allows no conclusions.
func (c *controller) Garbage(n *ciliumio.Node) (reason string, garbage bool) {
	key := slim.Key{Name: n.Name}
	if _, ok := c.nodes.Get(key); ok || c.nodes.Hides(key) || c.nodes.Len() == 0 {
		return "", false
	}
	return why(n), orphan(n)
}

// Confirm asks the API server, as the store may miss a Node that exists.
func (c *controller) Confirm(ctx context.Context, n *ciliumio.Node) (garbage bool, err error) {
	ref := k8s.Ref{Resource: nodes.Resource(), Name: n.Name}
	_, err = c.Client.Get(ctx, ref)
	if k8s.IsNotFound(err, ref) {
		return true, nil
	}
	return false, err
}

// nodeAppeared is the CiliumNode of a Node.
func (*controller) nodeAppeared(ch stream.Change[node]) []slim.Key {
	if ch.Kind != stream.Upsert {
		return nil
	}
	return []slim.Key{{Name: ch.Key.Name}}
}
