// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package derivative

import (
	"errors"
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// maxSingle is how many addresses of an entry are listed one by one. More are merged into prefixes, so that the policy of a
// group of thousands fits into an object.
const maxSingle = 256

// prefixesOf are the prefixes of addresses: one for each, in their order, or the least that cover just those.
func prefixesOf(all []netip.Addr) (prefixes []netip.Prefix) {
	seen := map[netip.Addr]bool{}
	var set netipx.IPSetBuilder
	for _, a := range all {
		if !seen[a] {
			prefixes = append(prefixes, netip.PrefixFrom(a, a.BitLen()))
			set.Add(a)
		}
		seen[a] = true
	}
	if len(prefixes) <= maxSingle {
		return prefixes
	}
	merged, err := set.IPSet()
	if err != nil { // of valid addresses there is none
		return prefixes
	}
	return merged.Prefixes()
}

// normalized are the addresses of a look-up, each once and in order. The error names one that is not valid.
func normalized(found []netip.Addr) (all []netip.Addr, err error) {
	for _, a := range found {
		if !a.IsValid() {
			return nil, errors.New("an address of the group is not valid")
		}
		all = append(all, a.Unmap().WithZone(""))
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all), nil
}
