// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ec2test

import (
	"fmt"
	"net/netip"
	"slices"
)

// AddIPv6 gives a subnet a block of IPv6, of 64 bits. Interfaces in a subnet without one get no prefixes of IPv6.
func (c *Cloud) AddIPv6(subnet, cidr string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subnets[subnet].ipv6 = netip.MustParsePrefix(cidr).Masked()
}

// blocksOfIPv6 are those of a subnet, one or none.
func (s *subnet) blocksOfIPv6() []string {
	if !s.ipv6.IsValid() {
		return nil
	}
	return []string{s.ipv6.String()}
}

// ipv6Block is the n-th block of 80 bits of one of 64.
func ipv6Block(of netip.Prefix, n int) string {
	bytes := of.Addr().As16()
	bytes[8], bytes[9] = byte(n>>8), byte(n)
	return netip.PrefixFrom(netip.AddrFrom16(bytes), 80).String()
}

// allocateIPv6 returns prefixes of 80 bits. None is given twice.
func (s *subnet) allocateIPv6(count int) (list []string, err *Error) {
	switch {
	case count == 0:
		return nil, nil
	case !s.ipv6.IsValid():
		return nil, invalid("The subnet %s does not have an IPv6 CIDR block", s.id)
	case s.ipv6Count+count > 1<<16:
		return nil, &Error{Code: "InsufficientCidrBlocks", Message: fmt.Sprintf("There are not enough contiguous free CIDR blocks of size /80 in the subnet %s", s.id)}
	}
	for range count {
		list = append(list, ipv6Block(s.ipv6, s.ipv6Count))
		s.ipv6Count++
	}
	return list, nil
}

// checkIPv6 refuses more addresses and prefixes of IPv6 than an interface can have: as many as of IPv4.
func (c *Cloud) checkIPv6(instance string, count int) *Error {
	i := c.instances[instance]
	if i == nil || count <= c.types[i.kind].IPv4 {
		return nil
	}
	return &Error{Code: "PrivateIpAddressLimitExceeded", Message: fmt.Sprintf("Number of IPv6 addresses will exceed limit of %d of %s.", c.types[i.kind].IPv4, i.kind)}
}

func (c *Cloud) assignIPv6Addresses(r request) (any, *Error) {
	prefixes, err := r.number("Ipv6PrefixCount")
	if err != nil {
		return nil, err
	}
	e := c.enis[r.text("NetworkInterfaceId")]
	switch {
	case e == nil:
		return nil, notFound("NetworkInterfaceID", r.text("NetworkInterfaceId"))
	case prefixes == 0:
		return nil, &Error{Code: "MissingParameter", Message: "The request must contain a number of addresses or of prefixes"}
	}
	if err := c.checkIPv6(e.instance, len(e.ipv6)+prefixes); err != nil {
		return nil, err
	}
	s := c.subnets[e.subnet]
	if s == nil {
		return nil, notFound("SubnetID", e.subnet)
	}
	blocks, err := s.allocateIPv6(prefixes)
	if err != nil {
		return nil, err
	}
	next := *e
	next.ipv6 = slices.Concat(e.ipv6, blocks)
	c.put(&next)
	return struct {
		RequestID string   `xml:"requestId"`
		Interface string   `xml:"networkInterfaceId"`
		Prefixes  []string `xml:"assignedIpv6PrefixSet>item"`
	}{done.RequestID, e.id, blocks}, nil
}
