// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package alloc

import (
	"net/netip"

	"lukechampine.com/uint128"
)

// Family is an address family.
type Family uint8

// The address families.
const (
	IPv4 Family = iota
	IPv6
)

// String is "IPv4" or "IPv6".
func (f Family) String() string { return [...]string{"IPv4", "IPv6"}[f] }

// FamilyOf is the family of an address. An IPv4-mapped one is IPv4.
func FamilyOf(a netip.Addr) Family {
	if a.Unmap().Is4() {
		return IPv4
	}
	return IPv6
}

// bits is the length of addresses.
func (f Family) bits() int { return [...]int{32, 128}[f] }

// numberOf is the number of an address that is not IPv4-mapped.
func numberOf(a netip.Addr) number {
	bytes := a.As16()
	n := uint128.FromBytesBE(bytes[:])
	if a.Is4() {
		n = n.And(ones(32))
	}
	return n
}

func (f Family) addr(n number) netip.Addr {
	var bytes [16]byte
	n.PutBytesBE(bytes[:])
	if f == IPv4 {
		return netip.AddrFrom4([4]byte(bytes[12:]))
	}
	return netip.AddrFrom16(bytes)
}

func (f Family) prefix(lo number, order uint8) netip.Prefix {
	return netip.PrefixFrom(f.addr(lo), f.bits()-int(order))
}

// spanOf is the numbers of a masked prefix, and their order.
func spanOf(p netip.Prefix) (s span, order uint8) {
	order = uint8(p.Addr().BitLen() - p.Bits())
	return block(numberOf(p.Addr()), order), order
}
