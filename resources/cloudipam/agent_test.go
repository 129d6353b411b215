// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam_test

import (
	"maps"
	"slices"
	"strings"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// agent is the agent of a node: with the handshake of agents up to 1.19, or with pools.
type agent struct {
	world *world
	name  string
	pools bool
	inUse map[string]bool
	seen  *v2.CiliumNode // its cache
}

// usable are the addresses that the agent may hand to a pod, by an object.
func (a *agent) usable(n *v2.CiliumNode) (list []string) {
	if a.pools {
		for _, p := range n.Spec.IPAM.Pools.Allocated {
			for _, c := range p.CIDRs {
				list = append(list, strings.TrimSuffix(c, "/32"))
			}
		}
		return list
	}
	for ip := range n.Spec.IPAM.Pool {
		if state := n.Status.IPAM.ReleaseIPs[ip]; state == "" || state == v2.IPDoNotRelease {
			list = append(list, ip)
		}
	}
	slices.Sort(list)
	return list
}

func (a *agent) step() {
	switch k := a.world.r.IntN(10); {
	case k < 3:
		a.sync()
	case k < 6:
		a.startPod()
	case k < 7:
		a.stopPod()
	default:
		a.report()
	}
}

func (a *agent) sync() { a.seen = a.world.nodes[a.name].DeepCopy() }

func (a *agent) startPod() {
	for _, ip := range a.usable(a.seen) {
		if !a.inUse[ip] && len(a.inUse) < 8 {
			a.inUse[ip] = true
			a.world.tally["pod"]++
			a.world.logf("  %s uses %s", a.name, ip)
			return
		}
	}
}

func (a *agent) stopPod() {
	if list := slices.Sorted(maps.Keys(a.inUse)); len(list) > 0 {
		delete(a.inUse, list[a.world.r.IntN(len(list))])
	}
}

// report writes what the agent says of its addresses, if nothing has changed since it has seen the object.
func (a *agent) report() {
	w, n := a.world, a.seen.DeepCopy()
	if a.pools {
		a.release(n)
	} else {
		a.answer(n)
	}
	if w.nodes[a.name].ResourceVersion != a.seen.ResourceVersion || a.same(n) {
		return
	}
	w.stored(n)
	a.seen = n.DeepCopy()
	w.logf("  %s reports used %v, release %v, allocated %v", a.name, slices.Sorted(maps.Keys(n.Status.IPAM.Used)), n.Status.IPAM.ReleaseIPs, n.Spec.IPAM.Pools.Allocated)
}

func (a *agent) same(n *v2.CiliumNode) bool {
	return maps.Equal(n.Status.IPAM.Used, a.seen.Status.IPAM.Used) && maps.Equal(n.Status.IPAM.ReleaseIPs, a.seen.Status.IPAM.ReleaseIPs) &&
		slices.EqualFunc(n.Spec.IPAM.Pools.Requested, a.seen.Spec.IPAM.Pools.Requested, func(p, q v2.IPAMPoolRequest) bool { return p == q }) &&
		slices.EqualFunc(n.Spec.IPAM.Pools.Allocated, a.seen.Spec.IPAM.Pools.Allocated, func(p, q v2.IPAMPoolAllocation) bool { return slices.Equal(p.CIDRs, q.CIDRs) })
}

// answer is the handshake.
func (a *agent) answer(n *v2.CiliumNode) {
	n.Status.IPAM.Used = map[string]v2.AllocationIP{}
	for ip := range a.inUse {
		n.Status.IPAM.Used[ip] = v2.AllocationIP{Owner: "default/" + ip}
	}
	for ip, state := range n.Status.IPAM.ReleaseIPs {
		_, isInPool := n.Spec.IPAM.Pool[ip]
		switch {
		case state == v2.IPReleased && !isInPool:
			delete(n.Status.IPAM.ReleaseIPs, ip)
		case state == v2.IPMarkedForRelease && isInPool && (!a.inUse[ip] || a.world.careless):
			n.Status.IPAM.ReleaseIPs[ip] = v2.IPReadyForRelease
			if a.world.careless {
				delete(n.Status.IPAM.Used, ip)
			}
			a.world.tally["ready"]++
			a.world.tally["marked"]++
		case state == v2.IPMarkedForRelease:
			n.Status.IPAM.ReleaseIPs[ip] = v2.IPDoNotRelease
			a.world.tally["refused by agent"]++
			a.world.tally["marked"]++
		}
	}
}

// release requests what the agent needs of a pool, and removes CIDRs that it does not need.
func (a *agent) release(n *v2.CiliumNode) {
	want := len(a.inUse) + n.Spec.IPAM.PreAllocate
	n.Spec.IPAM.Pools.Requested = []v2.IPAMPoolRequest{{Pool: "default", Needed: v2.IPAMPoolDemand{IPv4Addrs: want}}}
	for i := range n.Spec.IPAM.Pools.Allocated {
		p := &n.Spec.IPAM.Pools.Allocated[i]
		surplus := len(p.CIDRs) - want
		p.CIDRs = slices.DeleteFunc(slices.Clone(p.CIDRs), func(c string) bool {
			surplus--
			drop := surplus >= 0 && !a.inUse[strings.TrimSuffix(c, "/32")]
			if drop {
				a.world.tally["returned"]++
			}
			return drop
		})
	}
}
