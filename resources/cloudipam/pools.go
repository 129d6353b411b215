// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// Agents from 1.20 have the protocol of pools in the mode eni: they request a number of addresses of the pool named default, use what
// status.eni.enis shows, and list the CIDRs that they use, or may use, in spec.ipam.pools.allocated. They alone write that list. A
// CIDR that they take off it may be used again for as long as the status shows it.
const (
	poolName      = "default"
	modeWithPools = "eni"
)

// returnDelay is for how long the status must not have shown a CIDR before it is unassigned: an agent that uses it again at the last
// moment lists it within this time.
const returnDelay = 10 * time.Second

// requested is how many addresses an agent with the protocol of pools asks for.
func requested(spec *v2.IPAMSpec) (n int, ok bool) {
	for _, r := range spec.Pools.Requested {
		if r.Pool == poolName {
			n, ok = max(n, r.Needed.IPv4Addrs), true
		}
	}
	return n, ok
}

// hasPools reports whether the agent of a node has the protocol of pools now (CIPAM-37). One of 1.19 leaves the request of a newer
// agent as it was, and lists which addresses are used; a newer one lists none of these.
func hasPools(mode string, spec *v2.IPAMSpec, status *v2.IPAMStatus) bool {
	_, asks := requested(spec)
	return mode == modeWithPools && asks && len(status.Used) == 0
}

// allocated are the CIDRs of IPv4 that an agent with the protocol of pools lists. A prefix of IPv6 is never released.
func allocated(spec *v2.IPAMSpec) map[string]bool {
	set := map[string]bool{}
	for _, p := range spec.Pools.Allocated {
		if p.Pool == poolName {
			for _, c := range p.CIDRs {
				if !strings.Contains(c, ":") {
					set[c] = true
				}
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

// unlisted are the addresses that can be unassigned and that the agent's list lacks, as many as the node can do without. Those of a
// prefix are all among them, or none. An agent that lists nothing has not begun.
func (s snapshot) unlisted(p Provider) (list []string) {
	listed := allocated(&s.node.Spec.IPAM)
	if len(listed) == 0 {
		return nil
	}
	isListed := func(a string) bool { return listed[cidrOf(a, s.has[a])] }
	spare := len(s.has) - max(s.minAllocate, s.used+s.preAllocate)
	for _, of := range s.instance.Interfaces {
		one := *s.instance
		one.Interfaces = []Interface{of}
		for _, unit := range s.unitsOf(p.Releasable(s.node, &one, isListed, len(s.has))) {
			if len(unit) <= spare {
				list = append(list, unit...)
				spare -= len(unit)
			}
		}
	}
	return list
}

// leave takes over the addresses that the agent's list lacks. Those that it has lacked for the delay are hidden from the agent, and
// ready are those that have been hidden for returnDelay. pause is when the next step is due, 0 for never.
func (r *releases) leave(addresses []string, now time.Time, delay time.Duration) (ready []string, pause time.Duration) {
	r.propose(addresses, now)
	for _, a := range addresses {
		of := r.byAddress[a]
		if !of.marked && now.Sub(of.since) >= delay {
			of = release{since: now, marked: true}
			r.byAddress[a] = of
		}
		rest := delay - now.Sub(of.since)
		if of.marked {
			rest = returnDelay - now.Sub(of.since)
		}
		if rest <= 0 {
			ready = append(ready, a)
			continue
		}
		pause = sooner(pause, rest)
	}
	return ready, pause
}

// hidden says which addresses the agent of a CiliumNode is not to see: those that were unassigned, and those that are to be, unless the
// agent has listed them again, or is of another release now.
func (c *controller) hidden(n *v2.CiliumNode, st *nodeState, s snapshot) func(string) bool {
	if !s.pools || !hasPools(c.Cluster.IPAM, &n.Spec.IPAM, &n.Status.IPAM) {
		return st.isDetached
	}
	listed := allocated(&n.Spec.IPAM)
	return func(a string) bool {
		return st.isDetached(a) || st.byAddress[a].marked && !listed[cidrOf(a, s.has[a])]
	}
}

// hide takes addresses, and prefixes whose first address is hidden, off what an agent with the protocol of pools uses.
func hide(status *v2.ENIStatus, isHidden func(string) bool) {
	for id, of := range status.ENIs {
		of.Addresses = slices.DeleteFunc(slices.Clone(of.Addresses), isHidden)
		of.Prefixes = slices.DeleteFunc(slices.Clone(of.Prefixes), func(prefix string) bool {
			p, err := netip.ParsePrefix(prefix)
			return err == nil && isHidden(p.Masked().Addr().String())
		})
		status.ENIs[id] = of
	}
}

// shows reports whether a status shows an address, or the prefix that has it, to an agent with the protocol of pools.
func shows(status *v2.ENIStatus, address string, a Address) bool {
	for _, of := range status.ENIs {
		if slices.Contains(of.Addresses, address) || a.Prefix != "" && slices.Contains(of.Prefixes, a.Prefix) {
			return true
		}
	}
	return false
}
