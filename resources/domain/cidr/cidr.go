// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cidr

import (
	"encoding/json"
	"net"
	"net/netip"
	"regexp"

	netutils "k8s.io/utils/net"
)

// Parse parses as agents do, with net.ParseCIDR: a mask may start with zeros, and an IPv4 CIDR may be written as an
// IPv6 one. The result is masked. ok is false for a text that agents cannot read.
func Parse(text string) (c netip.Prefix, ok bool) {
	_, network, err := net.ParseCIDR(text)
	if err != nil {
		return netip.Prefix{}, false
	}
	return prefixOf(network), true
}

func prefixOf(network *net.IPNet) netip.Prefix {
	ones, bits := network.Mask.Size()
	address, _ := netip.AddrFromSlice(network.IP)
	if address.Is4In6() && bits == 128 {
		ones -= 96 // the prefix of IPv4-mapped addresses
	}
	return netip.PrefixFrom(address.Unmap(), ones)
}

// likeCIDR matches text that may be a CIDR.
var likeCIDR = regexp.MustCompile(`[0-9A-Fa-f:.]+/[0-9]+`)

// Find returns the CIDRs in a text that is not a CIDR.
func Find(text string) (found []netip.Prefix) {
	for _, piece := range likeCIDR.FindAllString(text, -1) {
		if _, network, err := netutils.ParseCIDRSloppy(piece); err == nil {
			found = append(found, prefixOf(network))
		}
	}
	return found
}

// FindInJSON returns the CIDRs in the texts of a JSON value, also in the keys of objects.
func FindInJSON(raw []byte) []netip.Prefix {
	var value any
	if json.Unmarshal(raw, &value) != nil {
		return nil
	}
	return findIn(value)
}

func findIn(value any) (found []netip.Prefix) {
	switch value := value.(type) {
	case string:
		return Find(value)
	case []any:
		for _, element := range value {
			found = append(found, findIn(element)...)
		}
	case map[string]any:
		for key, element := range value {
			found = append(append(found, Find(key)...), findIn(element)...)
		}
	}
	return found
}

// Contains reports whether a CIDR lies in another.
func Contains(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Overlaps(inner)
}

// IsVast reports whether a CIDR is so large that no operator gives it to a node: an IPv4 CIDR larger than a /16, an IPv6 one
// larger than a /48.
func IsVast(c netip.Prefix) bool {
	if c.Addr().Is4() {
		return c.Bits() < 16
	}
	return c.Bits() < 48
}
