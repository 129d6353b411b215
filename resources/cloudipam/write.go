// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/printable"
)

func (n *ciliumNode) ref(subresource string) k8s.Ref {
	return k8s.Ref{Resource: v2.CiliumNodeResource, Name: n.Name, UID: n.UID.API(), Subresource: subresource}
}

// writeNode writes the status of a CiliumNode before its spec: an address in the pool has its interface in the status. Each
// is written only if something differs.
func (c *controller) writeNode(ctx context.Context, n *ciliumNode, st *nodeState, s snapshot) error {
	if err := c.update(ctx, n, st, "status", func(n *v2.CiliumNode) error {
		c.setStatus(n, st, s)
		return nil
	}); err != nil {
		return err
	}
	return c.update(ctx, n, st, "", func(n *v2.CiliumNode) error {
		c.setSpec(n, st, s)
		return nil
	})
}

// writeProblem writes only why a node gets no addresses.
func (c *controller) writeProblem(ctx context.Context, n *ciliumNode, text string) error {
	if n.DecodeError() != nil {
		return nil // health has it
	}
	return c.update(ctx, n, c.stateOf(n), "status", func(n *v2.CiliumNode) error {
		n.Status.IPAM.OperatorStatus.Error = printable.Line(text)
		return nil
	})
}

// idleEdit is an edit of a CiliumNode that was not written, although it changes what is cached of that revision: the installed
// definition lacks a field. To read the node for each such edit would take all requests that there are.
type idleEdit struct {
	revision slim.Revision
	edited   [sha256.Size]byte
}

func idleEditOf(n *ciliumNode, edited *v2.CiliumNode) (idleEdit, error) {
	text, err := json.Marshal(edited)
	if err != nil {
		return idleEdit{}, fmt.Errorf("encoding CiliumNode %s: %w", n.Name, err)
	}
	return idleEdit{n.ResourceVersion, sha256.Sum256(text)}, nil
}

// update edits a CiliumNode, if the edit changes what is cached. It starts from the object as the API server has it.
func (c *controller) update(ctx context.Context, n *ciliumNode, st *nodeState, subresource string, edit func(*v2.CiliumNode) error) error {
	cached := &v2.CiliumNode{Spec: *n.Spec.DeepCopy(), Status: *n.Status.DeepCopy()}
	if err := edit(cached); err != nil {
		return err
	}
	if equality.Semantic.DeepEqual(n.Spec, cached.Spec) && equality.Semantic.DeepEqual(n.Status, cached.Status) && (n.Status.IPAM.Used == nil) == (cached.Status.IPAM.Used == nil) {
		return nil
	}
	is, err := idleEditOf(n, cached)
	if err != nil || st.idle[subresource] == is {
		return err
	}
	written, err := k8s.Update(k8s.WithWholeObjects(ctx), c.Client, n.ref(subresource), edit) // an edit of the status reads the pool
	if err == nil && !written {
		st.idle[subresource] = is
	}
	return err
}

// setStatus sets what the operator has in the status.
func (c *controller) setStatus(n *v2.CiliumNode, st *nodeState, s snapshot) {
	status := &n.Status
	if status.IPAM.Used == nil {
		status.IPAM.Used = map[string]v2.AllocationIP{}
	}
	status.IPAM.OperatorStatus.Error = printable.Line(cmp.Or(st.problem, st.static.problem))
	if address := c.staticIP(st, s); address != "" {
		status.IPAM.AssignedStaticIP = address
	}
	c.Provider.SetStatus(s.node, s.instance, status)
	s.restrict(status)
	if s.pools {
		hide(&status.ENI, c.hidden(n, st, s))
		status.IPAM.ReleaseIPs = nil
		return
	}
	isInPool := func(a string) bool { _, is := n.Spec.IPAM.Pool[a]; return is }
	isDesired := func(a string) bool { _, is := s.has[a]; return is && !st.isDetached(a) }
	if status.IPAM.ReleaseIPs = st.entries(status.IPAM.ReleaseIPs, isInPool, isDesired); len(status.IPAM.ReleaseIPs) == 0 {
		status.IPAM.ReleaseIPs = nil
	}
}

func (r *releases) isDetached(address string) bool {
	_, is := r.detached[address]
	return is
}

// setSpec sets what the operator has in the spec. spec.ipam.pools is the agent's.
func (c *controller) setSpec(n *v2.CiliumNode, st *nodeState, s snapshot) {
	ipam := &n.Spec.IPAM
	ipam.Pool = s.pool(ipam.Pool, c.hidden(n, st, s))
	if ipam.PreAllocate == 0 {
		ipam.PreAllocate = s.limits.PreAllocate
	}
}

// confirmed are those of the addresses that the API server shows as released by the agent, too: the cache may show an answer
// to an earlier question.
func (c *controller) confirmed(ctx context.Context, s snapshot, addresses []string) ([]string, error) {
	n, _ := c.nodes.Get(slim.Key{Name: s.node.Name})
	if n == nil {
		return nil, nil
	}
	u, err := c.Client.Get(ctx, n.ref(""))
	if err != nil {
		return nil, err
	}
	var is v2.CiliumNode
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &is); err != nil {
		return nil, err
	}
	if hasPools(c.Cluster.IPAM, &is.Spec.IPAM, &is.Status.IPAM) != s.pools {
		return nil, nil // by another agent
	}
	return slices.DeleteFunc(slices.Clone(addresses), func(a string) bool { return !isReleased(&is, s.pools, a, s.has[a]) }), nil
}

// isReleased reports whether an agent, with the protocol of pools or without, uses an address neither now nor before the operator
// offers it again.
func isReleased(n *v2.CiliumNode, pools bool, address string, of Address) bool {
	if _, used := n.Status.IPAM.Used[address]; used {
		return false
	}
	if pools {
		listed := allocated(&n.Spec.IPAM)
		return len(listed) > 0 && !listed[cidrOf(address, of)] && !shows(&n.Status.ENI, address, of)
	}
	return n.Status.IPAM.ReleaseIPs[address] == v2.IPReadyForRelease
}
