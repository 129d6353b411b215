// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// Agents from 1.20 have the protocol of pools: they request a number of addresses of the pool named default, the operator
// lists CIDRs in spec.ipam.pools.allocated, and an agent releases one by removing it from there. It is visible per node.
const poolName = "default"

// requested is how many addresses an agent with the protocol of pools asks for.
func requested(spec *v2.IPAMSpec) (n int, ok bool) {
	for _, r := range spec.Pools.Requested {
		if r.Pool == poolName {
			n, ok = max(n, r.Needed.IPv4Addrs), true
		}
	}
	return n, ok
}

// allocated are the CIDRs that are listed for an agent with the protocol of pools.
func allocated(spec *v2.IPAMSpec) map[string]bool {
	set := map[string]bool{}
	for _, p := range spec.Pools.Allocated {
		if p.Pool == poolName {
			for _, c := range p.CIDRs {
				set[c] = true
			}
		}
	}
	return set
}

// cidrOf is the CIDR in which an address is listed, "" if it is no address.
func cidrOf(address string, a Address) string {
	if a.Prefix != "" {
		return a.Prefix
	}
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return ""
	}
	return netip.PrefixFrom(ip, ip.BitLen()).String()
}

// returned are the addresses of the pool that the agent has removed from the CIDRs: the operator lists an address in both at
// once, and agents do not change the pool. Without any CIDR nothing was listed yet.
func returned(spec *v2.IPAMSpec, has map[string]Address) []string {
	if _, ok := requested(spec); !ok {
		return nil
	}
	listed := allocated(spec)
	if len(listed) == 0 {
		return nil
	}
	var list []string
	for a := range spec.Pool {
		if of, ok := has[a]; ok && !listed[cidrOf(a, of)] {
			list = append(list, a)
		}
	}
	slices.Sort(list)
	return list
}

// setAllocated lists the CIDRs of a pool: those that are listed, those of addresses that are new in the pool, and those of
// addresses that are offered again. pool is what the object has had.
func setAllocated(spec *v2.IPAMSpec, pool map[string]v2.AllocationIP, has map[string]Address, offered func(string) bool) {
	_, wanted := requested(spec)
	listed, want := allocated(spec), map[string]bool{}
	for a := range spec.Pool {
		c := cidrOf(a, has[a])
		if _, known := pool[a]; wanted && c != "" && (len(listed) == 0 || listed[c] || !known || offered(a)) {
			want[c] = true
		}
	}
	if maps.Equal(listed, want) {
		return
	}
	spec.Pools.Allocated = slices.DeleteFunc(slices.Clone(spec.Pools.Allocated), func(p v2.IPAMPoolAllocation) bool { return p.Pool == poolName })
	if len(want) > 0 {
		spec.Pools.Allocated = append(spec.Pools.Allocated, v2.IPAMPoolAllocation{Pool: poolName, CIDRs: slices.Sorted(maps.Keys(want))})
	}
}

// agree takes over the addresses that an agent has returned, and returns those that it has not used for the delay.
func (r *releases) agree(addresses []string, now time.Time, delay time.Duration) (ready []string) {
	r.propose(addresses, now)
	for _, a := range addresses {
		if now.Sub(r.byAddress[a].since) >= delay {
			ready = append(ready, a)
		}
	}
	return ready
}
