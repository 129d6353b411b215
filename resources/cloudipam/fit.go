// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import (
	"net/netip"
	"slices"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// IsForPods reports whether a text is an address of IPv4 that a pod can have, written as agents write it (CIPAM-44).
func IsForPods(text string) bool {
	a, err := netip.ParseAddr(text)
	return err == nil && a.Is4() && a.IsGlobalUnicast()
}

// isPrefixForPods reports whether a text is a prefix of IPv6 that pods can have, written as agents write it.
func isPrefixForPods(text string) bool {
	p, err := netip.ParsePrefix(text)
	return err == nil && p.Addr().Is6() && !p.Addr().Is4In6() && p.Addr().IsGlobalUnicast() && p.Masked().String() == text
}

// keyOf is the text by which an address or prefix is compared with others: two texts may be of one address.
func keyOf(text string) (key string, ok bool) {
	if a, err := netip.ParseAddr(text); err == nil {
		if a.Is4() {
			return text, true
		}
		return a.WithZone("").Unmap().String(), true
	}
	p, err := netip.ParsePrefix(text)
	return p.Masked().String(), err == nil
}

// place is an address, or a prefix of IPv6, as the cloud shows it of an interface.
type place struct{ resource, text string }

// Why an address is not given to a node that does not have it.
const (
	whyShared  = " (of several instances)"
	whyOwn     = " (the instance's own)"
	whyOutside = " (outside of the subnet)"
)

// filter leaves out what the cloud shows of the instance and what its pods cannot have: has, and what is published of interfaces, are
// without it. What the node has already stays, since pods may use it, unless no pod can. An agent with the protocol of pools uses
// prefixes as a whole.
func (s *snapshot) filter(isShared func(of Interface, text string) bool) {
	s.left, s.own = map[place]bool{}, ownOf(s.instance)
	for _, of := range s.instance.Interfaces {
		for _, a := range of.Addresses {
			why := ""
			switch ip, _ := netip.ParseAddr(a); {
			case !IsForPods(a):
				s.leave(of, a, "", false)
				continue
			case s.own[a]:
				why = whyOwn
			case of.isOutside(ip):
				why = whyOutside
			case isShared(of, a):
				why = whyShared
			default:
				continue
			}
			s.leave(of, a, why, s.holds(a))
		}
		for _, a := range of.Own {
			if !IsForPods(a) {
				s.leave(of, a, "", false)
			}
		}
		s.filterPrefixes(of, isShared)
	}
	slices.Sort(s.unfit)
	s.unfit = slices.Compact(s.unfit)
	s.drop()
}

// filterPrefixes does the same for the prefixes of IPv6 of an interface.
func (s *snapshot) filterPrefixes(of Interface, isShared func(of Interface, text string) bool) {
	for _, text := range of.IPv6Prefixes {
		p, _ := netip.ParsePrefix(text)
		switch {
		case !isPrefixForPods(text):
			s.leave(of, text, "", false)
		case of.isOutside(p.Addr()):
			s.leave(of, text, whyOutside, s.lists(text))
		case isShared(of, text):
			s.leave(of, text, whyShared, s.lists(text))
		}
	}
}

// leave leaves out an address or prefix, unless the node keeps it. It is reported in any case.
func (s *snapshot) leave(of Interface, text, why string, keeps bool) {
	s.unfit = append(s.unfit, text+why)
	if !keeps {
		s.left[place{of.ID, text}] = true
	}
}

// drop takes what is left out off the addresses of the node.
func (s *snapshot) drop() {
	partial := map[place]bool{} // prefixes without one of their addresses
	for a, of := range s.has {
		if of.Prefix != "" && s.isLeft(of.Resource, a) {
			partial[place{of.Resource, of.Prefix}] = true
		}
	}
	for a, of := range s.has {
		if s.pools && partial[place{of.Resource, of.Prefix}] {
			s.left[place{of.Resource, a}] = true
		}
		if s.isLeft(of.Resource, a) {
			delete(s.has, a)
		}
	}
}

// isLeft reports whether an address is left out of an interface.
func (s *snapshot) isLeft(resource, address string) bool {
	return !IsForPods(address) || s.left[place{resource, address}]
}

// holds reports whether the CiliumNode has an address that the cloud shows: in its pool, among those that are used, or on the list of an
// agent with the protocol of pools.
func (s *snapshot) holds(address string) bool {
	if _, has := s.node.Spec.IPAM.Pool[address]; has || s.isUsed(address) {
		return true
	}
	return s.lists(cidrOf(address, s.has[address]))
}

// lists reports whether an agent with the protocol of pools lists a CIDR.
func (s *snapshot) lists(cidr string) bool {
	return s.pools && slices.ContainsFunc(s.node.Spec.IPAM.Pools.Allocated, func(p v2.IPAMPoolAllocation) bool {
		return p.Pool == poolName && slices.Contains(p.CIDRs, cidr)
	})
}

// ownOf are the addresses of an instance that are not for pods, whatever interface shows them.
func ownOf(i *Instance) map[string]bool {
	own := map[string]bool{}
	for _, of := range i.Interfaces {
		for _, a := range of.Own {
			own[a] = true
		}
	}
	return own
}

// isOutside reports whether an address is in none of the ranges of an interface, as far as some of its family are known.
func (i Interface) isOutside(a netip.Addr) bool {
	known := false
	for _, r := range i.Ranges {
		if r.Contains(a) {
			return false
		}
		known = known || r.Addr().Is4() == a.Is4()
	}
	return known
}

// restrict takes what is left out off the interfaces that a provider has published.
func (s *snapshot) restrict(status *v2.CiliumNodeStatus) {
	for id, of := range status.ENI.ENIs {
		isLeft := func(a string) bool { return s.isLeft(id, a) }
		of.Addresses = without(of.Addresses, isLeft)
		of.Prefixes = without(of.Prefixes, func(prefix string) bool { return slices.ContainsFunc(inIPv4(prefix), isLeft) })
		of.IPv6Prefixes = without(of.IPv6Prefixes, func(prefix string) bool { return s.left[place{id, prefix}] })
		status.ENI.ENIs[id] = of
	}
	for i, of := range status.Azure.Interfaces {
		status.Azure.Interfaces[i].Addresses = without(of.Addresses, func(a v2.AzureAddress) bool { return s.isLeft(of.ID, a.IP) })
	}
	for id, of := range status.AlibabaCloud.ENIs {
		of.PrivateIPSets = without(of.PrivateIPSets, func(a v2.AlibabaCloudPrivateIP) bool {
			isOwn := a.Primary && s.own[a.PrivateIPAddress] // which agents know by the mark
			return s.isLeft(id, a.PrivateIPAddress) && !isOwn
		})
		status.AlibabaCloud.ENIs[id] = of
	}
}

// without is a list without some elements. The list is a provider's, which may have it elsewhere.
func without[T any](list []T, isLeft func(T) bool) []T {
	if !slices.ContainsFunc(list, isLeft) {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), isLeft)
}

// mostOfPrefix is how many addresses of a prefix of IPv4 are regarded, which is more than clouds have in one.
const mostOfPrefix = 256

// inIPv4 are the addresses of a prefix of IPv4, in order.
func inIPv4(prefix string) (list []string) {
	p, err := netip.ParsePrefix(prefix)
	if err != nil || !p.Addr().Is4() {
		return nil
	}
	for a := p.Masked().Addr(); p.Contains(a) && len(list) < mostOfPrefix; a = a.Next() {
		list = append(list, a.String())
	}
	return list
}
