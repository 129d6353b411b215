// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cidr

import "net/netip"

// MaxOfNode is how many addresses of a family, and of a type, a node is believed to be reached at: an agent or a kubelet may write any.
const MaxOfNode = 8

// ParseHost parses an address at which a machine can be reached by others, a private one or not: none that is unspecified, of the
// loopback, link-local, multicast, or with a zone. One of IPv4 in the form of IPv6 is one of IPv4.
func ParseHost(text string) (a netip.Addr, ok bool) {
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		return netip.Addr{}, false
	}
	a = a.Unmap()
	return a, a.IsGlobalUnicast()
}

// Hosts are the addresses of texts, each once and in their order, up to MaxOfNode of each family. refused are the other texts.
func Hosts(texts []string) (all []netip.Addr, refused []string) {
	seen, count := map[netip.Addr]bool{}, map[bool]int{}
	for _, text := range texts {
		a, ok := ParseHost(text)
		switch {
		case seen[a]:
		case !ok || count[a.Is4()] == MaxOfNode:
			refused = append(refused, text)
		default:
			seen[a] = true
			count[a.Is4()]++
			all = append(all, a)
		}
	}
	return all, refused
}
