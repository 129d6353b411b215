// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import (
	"context"
	"errors"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cluster"
	cilium "github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/outside"
)

// IPv6Prefixer is a [Provider] whose instances can have a prefix of IPv6 for pods. A node has one, for good: it has more addresses than
// there are pods. CreateInterface assigns one, too, to an instance that lacks it.
type IPv6Prefixer interface {
	// IPv6Interface returns the interface that a prefix of IPv6 is to be assigned to, false if the node asks for none (see Node.IPv6),
	// if the instance has one, or if no interface can have it. It is that of FreeInterface, if there is one. It is Pure.
	IPv6Interface(n *Node, i *Instance, subnets map[string]Subnet) (Candidate, bool)
	// AssignIPv6Prefix adds one to the interface that IPv6Interface has returned. It is Whole, Guarded and Prompt, and Lasting.
	AssignIPv6Prefix(ctx context.Context, n *Node, i *Instance, to Candidate) error
}

// asksForIPv6 reports whether the agent of a node asks for addresses of IPv6, and can use a prefix of them (CIPAM-49). One without the
// protocol of pools may have the request of a newer one.
func asksForIPv6(c cluster.Config, spec *v2.IPAMSpec, status *v2.IPAMStatus) bool {
	if !cilium.IPv6PrefixesOfInterfaces.In(c.Release) || !hasPools(c.IPAM, spec, status) {
		return false
	}
	for _, r := range spec.Pools.Requested {
		if r.Pool == poolName && r.Needed.IPv6Addrs > 0 {
			return true
		}
	}
	return false
}

// assignIPv6 assigns a prefix of IPv6 to an instance that lacks the one that its agent asks for. called is that the cloud was called. An
// interface that is attached for other addresses gets it with these.
func (c *controller) assignIPv6(ctx context.Context, st *nodeState, s snapshot) (called bool, err error) {
	p, can := c.Provider.(IPv6Prefixer)
	if !can {
		return false, nil
	}
	subnets := c.cloud.allSubnets()
	to, lacks := p.IPv6Interface(s.node, s.instance, subnets)
	if !lacks {
		return false, nil
	}
	if _, hasRoom := c.Provider.FreeInterface(s.node, s.instance, subnets); !hasRoom && s.needed() > 0 && s.limits.EmptySlots > 0 {
		return false, nil
	}
	if err := p.AssignIPv6Prefix(ctx, s.node, s.instance, to); err != nil {
		if !errors.Is(err, outside.ErrPlanned) {
			c.changed(st)
		}
		return true, err
	}
	c.changed(st)
	st.added = true
	c.Log.Info("prefix of IPv6 assigned", "name", s.node.Name, "instance", s.instance.ID, "interface", to.Interface)
	return true, nil
}
