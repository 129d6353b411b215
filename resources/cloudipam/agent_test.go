// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam_test

import (
	"maps"
	"net/netip"
	"slices"

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

// replace starts an agent of another release: pods keep their addresses. What it writes first is whose protocol it has.
func (a *agent) replace() {
	if a.pools && len(a.inUse) == 0 {
		return // an agent of 1.19 uses an address itself, and lists it
	}
	a.pools = !a.pools
	a.world.tally["agent replaced"]++
	a.world.logf("the agent of %s is replaced, pools: %t", a.name, a.pools)
	n := a.world.nodes[a.name].DeepCopy()
	if n.Status.IPAM.Used = nil; a.pools {
		a.list(n)
	} else {
		a.answer(n)
	}
	a.world.stored(n)
	a.sync()
}

// usable are the addresses that the agent may hand to a pod, by an object.
func (a *agent) usable(n *v2.CiliumNode) (list []string) {
	if a.pools {
		for _, p := range n.Spec.IPAM.Pools.Allocated {
			for _, c := range p.CIDRs {
				list = append(list, within(c)...)
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
	if list := slices.Sorted(maps.Keys(a.inUse)); len(list) > 1 || len(list) == 1 && a.pools {
		delete(a.inUse, list[a.world.r.IntN(len(list))])
	}
}

// report writes what the agent says of its addresses, if nothing has changed since it has seen the object.
func (a *agent) report() {
	w, n := a.world, a.seen.DeepCopy()
	if a.pools {
		a.list(n)
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

// within are the addresses of a CIDR.
func within(cidr string) (list []string) {
	p := netip.MustParsePrefix(cidr)
	for ip := p.Addr(); p.Contains(ip); ip = ip.Next() {
		list = append(list, ip.String())
	}
	return list
}

// shown are the CIDRs that the status shows: prefixes, and single addresses.
func shown(n *v2.CiliumNode) (list []string) {
	for _, of := range n.Status.ENI.ENIs {
		list = append(list, of.Prefixes...)
		for _, ip := range of.Addresses {
			if !slices.ContainsFunc(of.Prefixes, func(p string) bool { return netip.MustParsePrefix(p).Contains(netip.MustParseAddr(ip)) }) {
				list = append(list, ip+"/32")
			}
		}
	}
	slices.Sort(list)
	return list
}

// list requests what the agent needs of a pool, and lists CIDRs of the status for it: those with addresses in use, and others until
// there are enough. It takes a CIDR off the list that it does not need, and lists it again when it does.
func (a *agent) list(n *v2.CiliumNode) {
	want := len(a.inUse) + n.Spec.IPAM.PreAllocate
	n.Spec.IPAM.Pools.Requested = []v2.IPAMPoolRequest{{Pool: "default", Needed: v2.IPAMPoolDemand{IPv4Addrs: want}}}
	var listed, spare []string
	has := 0
	for _, c := range shown(n) {
		all := within(c)
		if !slices.ContainsFunc(all, func(ip string) bool { return a.inUse[ip] }) {
			spare = append(spare, c)
			continue
		}
		listed, has = append(listed, c), has+len(all)
	}
	for _, c := range spare {
		if has < want {
			listed, has = append(listed, c), has+len(within(c))
		} else if slices.ContainsFunc(n.Spec.IPAM.Pools.Allocated, func(p v2.IPAMPoolAllocation) bool { return slices.Contains(p.CIDRs, c) }) {
			a.world.tally["returned"]++
		}
	}
	slices.Sort(listed)
	n.Spec.IPAM.Pools.Allocated = nil
	if len(listed) > 0 {
		n.Spec.IPAM.Pools.Allocated = []v2.IPAMPoolAllocation{{Pool: "default", CIDRs: listed, AllowFirstIP: true, AllowLastIP: true}}
	}
}
