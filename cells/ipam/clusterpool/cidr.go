// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterpool

import (
	"net/netip"
	"slices"

	"github.com/skep-operator/skep/resources/domain/cidr"
)

// within reports whether each CIDR lies in one of the allocated ones.
func within(cidrs, allocated []netip.Prefix) bool {
	return !slices.ContainsFunc(cidrs, func(c netip.Prefix) bool { return !withinOne(c, allocated) })
}

func withinOne(c netip.Prefix, allocated []netip.Prefix) bool {
	return slices.ContainsFunc(allocated, func(a netip.Prefix) bool { return cidr.Contains(a, c) })
}

var familyNames = [2]string{"IPv4", "IPv6"}

func familyOf(c netip.Prefix) int {
	if c.Addr().Is4() {
		return 0
	}
	return 1
}

// ofFamily are those CIDRs that are of a family, in their order.
func ofFamily(family int, cidrs []netip.Prefix) (list []netip.Prefix) {
	for _, c := range cidrs {
		if familyOf(c) == family {
			list = append(list, c)
		}
	}
	return list
}

// sorted puts IPv4 before IPv6 and keeps the order otherwise.
func sorted(cidrs []netip.Prefix) []netip.Prefix {
	slices.SortStableFunc(cidrs, func(a, b netip.Prefix) int { return familyOf(a) - familyOf(b) })
	return cidrs
}
