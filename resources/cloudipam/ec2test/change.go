// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ec2test

import (
	"fmt"
	"maps"
	"slices"
)

type returned struct {
	RequestID string `xml:"requestId"`
	Return    bool   `xml:"return"`
}

var done = returned{"00000000-0000-4000-8000-000000000000", true}

// amounts are how many addresses and prefixes a request is for.
type amounts struct{ addresses, prefixes, ipv6 int }

// newENI returns an interface that is not stored yet.
func (c *Cloud) newENI(subnetID string, groups []string, of amounts) (*eni, *Error) {
	s := c.subnets[subnetID]
	most := c.MaxInterfaces
	if most == 0 {
		most = 5000
	}
	switch {
	case s == nil:
		return nil, notFound("SubnetID", subnetID)
	case len(c.enis) >= most:
		return nil, &Error{Code: "NetworkInterfaceLimitExceeded", Message: "You have reached the maximum number of network interfaces that you can create"}
	case s.free() < 1+of.addresses:
		return nil, noAddresses(s)
	}
	for _, g := range groups {
		if of := c.groups[g]; of == nil || of.vpc != s.vpc {
			return nil, notFound("Group", g)
		}
	}
	ipv6, err := s.allocateIPv6(of.ipv6)
	if err != nil {
		return nil, err
	}
	blocks, ok := s.allocatePrefixes(of.prefixes)
	if !ok {
		s.ipv6Count -= of.ipv6
		return nil, noPrefixes(s)
	}
	list, ok := s.allocate(1 + of.addresses)
	if !ok {
		s.releasePrefixes(blocks...)
		s.ipv6Count -= of.ipv6
		return nil, noAddresses(s)
	}
	id := c.next("eni")
	return &eni{
		id: id, subnet: subnetID, mac: fmt.Sprintf("06:00:00:%02x:%02x:%02x", c.number>>16&255, c.number>>8&255, c.number&255), groups: groups,
		primary: list[0], singles: list[1:], prefixes: blocks, ipv6: ipv6,
	}, nil
}

func noAddresses(s *subnet) *Error {
	return &Error{Code: "InsufficientFreeAddressesInSubnet", Message: fmt.Sprintf("The specified subnet does not have enough free addresses to satisfy the request: %s", s.id)}
}

func noPrefixes(s *subnet) *Error {
	return &Error{Code: "InsufficientCidrBlocks", Message: fmt.Sprintf("There are not enough contiguous free CIDR blocks of size /28 in the subnet %s", s.id)}
}

// amounts are those that a request asks for.
func (r request) amounts() (of amounts, err *Error) {
	if of.ipv6, err = r.number("Ipv6PrefixCount"); err != nil {
		return of, err
	}
	of.addresses, of.prefixes, err = r.counts()
	return of, err
}

// counts are how many addresses and prefixes of IPv4 a request asks for.
func (r request) counts() (addresses, prefixes int, err *Error) {
	if addresses, err = r.number("SecondaryPrivateIpAddressCount"); err != nil {
		return 0, 0, err
	}
	if prefixes, err = r.number("Ipv4PrefixCount"); err != nil {
		return 0, 0, err
	}
	if addresses > 0 && prefixes > 0 {
		return 0, 0, &Error{Code: "InvalidParameterCombination", Message: "You cannot specify both a number of addresses and a number of prefixes"}
	}
	return addresses, prefixes, nil
}

func (c *Cloud) createNetworkInterface(r request) (any, *Error) {
	type response struct {
		RequestID   string  `xml:"requestId"`
		Interface   eniItem `xml:"networkInterface"`
		ClientToken string  `xml:"clientToken,omitempty"`
	}
	token := r.text("ClientToken")
	if id := c.tokens[token]; token != "" && id != "" && c.enis[id] != nil {
		return response{done.RequestID, c.item(c.enis[id]), token}, nil
	}
	of, err := r.amounts()
	if err != nil {
		return nil, err
	}
	groups := r.list("SecurityGroupId")
	if len(groups) == 0 {
		groups = []string{"sg-1"}
	}
	tags := map[string]string{}
	for n := 1; r.values.Has(fmt.Sprintf("TagSpecification.%d.ResourceType", n)); n++ {
		if kind := r.text(fmt.Sprintf("TagSpecification.%d.ResourceType", n)); kind != "network-interface" {
			return nil, invalid("'%s' is not a valid taggable resource type for this operation.", kind)
		}
		for m := 1; r.values.Has(fmt.Sprintf("TagSpecification.%d.Tag.%d.Key", n, m)); m++ {
			tags[r.text(fmt.Sprintf("TagSpecification.%d.Tag.%d.Key", n, m))] = r.text(fmt.Sprintf("TagSpecification.%d.Tag.%d.Value", n, m))
		}
	}
	e, err := c.newENI(r.text("SubnetId"), groups, of)
	if err != nil {
		return nil, err
	}
	e.description, e.tags = r.text("Description"), tags
	c.put(e)
	if token != "" {
		c.tokens[token] = e.id
	}
	return response{done.RequestID, c.item(e), token}, nil
}

func (c *Cloud) attachNetworkInterface(r request) (any, *Error) {
	index, err := r.number("DeviceIndex")
	if err != nil {
		return nil, err
	}
	card, err := r.number("NetworkCardIndex")
	if err != nil {
		return nil, err
	}
	e, i := c.enis[r.text("NetworkInterfaceId")], c.instances[r.text("InstanceId")]
	switch {
	case i == nil:
		return nil, &Error{Code: "InvalidInstanceID.NotFound", Message: fmt.Sprintf("The instance ID '%s' does not exist", r.text("InstanceId"))}
	case e == nil:
		return nil, notFound("NetworkInterfaceID", r.text("NetworkInterfaceId"))
	case e.instance != "":
		return nil, &Error{Code: "InvalidNetworkInterface.InUse", Message: fmt.Sprintf("Interface: %s in use.", e.id)}
	case i.state != "running" && i.state != "stopped":
		return nil, &Error{Code: "IncorrectState", Message: fmt.Sprintf("Instance %s is not 'running'", i.id)}
	case c.subnets[e.subnet] != nil && c.subnets[i.subnet] != nil && c.subnets[e.subnet].zone != c.subnets[i.subnet].zone:
		return nil, &Error{Code: "InvalidParameterCombination", Message: "You may not attach a network interface to an instance if they are not in the same availability zone"}
	}
	of := c.types[i.kind]
	if card < 0 || card >= max(1, of.Cards) {
		return nil, invalid("Network card index %d is not valid for %s", card, i.kind)
	}
	attached, onCard := 0, 0
	for _, other := range c.enis {
		if other.instance != i.id {
			continue
		}
		attached++
		if other.card != card {
			continue
		}
		onCard++
		if other.index == index {
			return nil, invalid("Instance '%s' already has an interface attached at device index '%d'.", i.id, index)
		}
	}
	switch {
	case attached >= of.Interfaces || onCard >= of.perCard():
		return nil, &Error{Code: "AttachmentLimitExceeded", Message: fmt.Sprintf("Interface count %d exceeds the limit for %s", attached+1, i.kind)}
	case 1+len(e.singles)+len(e.prefixes) > of.IPv4:
		return nil, tooMany(of.IPv4, i.kind)
	}
	if err := c.checkIPv6(i.id, len(e.ipv6)); err != nil {
		return nil, err
	}
	next := *e
	next.instance, next.attachment, next.status, next.index, next.card = i.id, c.next("eni-attach"), "attached", index, card
	if r.fault.Stuck {
		next.status = "attaching"
	}
	c.put(&next)
	return struct {
		RequestID  string `xml:"requestId"`
		Attachment string `xml:"attachmentId"`
	}{done.RequestID, next.attachment}, nil
}

func tooMany(most int, kind string) *Error {
	return &Error{Code: "PrivateIpAddressLimitExceeded", Message: fmt.Sprintf("Number of private addresses will exceed limit of %d of %s.", most, kind)}
}

func (c *Cloud) modifyNetworkInterfaceAttribute(r request) (any, *Error) {
	e := c.enis[r.text("NetworkInterfaceId")]
	switch {
	case e == nil:
		return nil, notFound("NetworkInterfaceID", r.text("NetworkInterfaceId"))
	case e.attachment == "" || e.attachment != r.text("Attachment.AttachmentId"):
		return nil, notFound("AttachmentID", r.text("Attachment.AttachmentId"))
	}
	next := *e
	next.deletedWithInstance = r.text("Attachment.DeleteOnTermination") == "true"
	c.put(&next)
	return done, nil
}

func (c *Cloud) assignPrivateIPAddresses(r request) (any, *Error) {
	addresses, prefixes, err := r.counts()
	if err != nil {
		return nil, err
	}
	e := c.enis[r.text("NetworkInterfaceId")]
	switch {
	case e == nil:
		return nil, notFound("NetworkInterfaceID", r.text("NetworkInterfaceId"))
	case addresses+prefixes == 0:
		return nil, &Error{Code: "MissingParameter", Message: "The request must contain a number of addresses or of prefixes"}
	}
	if i := c.instances[e.instance]; i != nil && 1+len(e.singles)+len(e.prefixes)+addresses+prefixes > c.types[i.kind].IPv4 {
		return nil, tooMany(c.types[i.kind].IPv4, i.kind)
	}
	s := c.subnets[e.subnet]
	if s == nil {
		return nil, notFound("SubnetID", e.subnet)
	}
	blocks, ok := s.allocatePrefixes(prefixes)
	if !ok {
		return nil, noPrefixes(s)
	}
	list, ok := s.allocate(addresses)
	if !ok {
		return nil, noAddresses(s)
	}
	next := *e
	next.singles, next.prefixes = slices.Concat(e.singles, list), slices.Concat(e.prefixes, blocks)
	c.put(&next)
	type assigned struct {
		Address string `xml:"privateIpAddress"`
	}
	body := struct {
		RequestID string       `xml:"requestId"`
		Interface string       `xml:"networkInterfaceId"`
		Addresses []assigned   `xml:"assignedPrivateIpAddressesSet>item"`
		Prefixes  []prefixItem `xml:"assignedIpv4PrefixSet>item"`
	}{RequestID: done.RequestID, Interface: e.id}
	for _, a := range list {
		body.Addresses = append(body.Addresses, assigned{a})
	}
	for _, p := range blocks {
		body.Prefixes = append(body.Prefixes, prefixItem{p})
	}
	return body, nil
}

func (c *Cloud) unassignPrivateIPAddresses(r request) (any, *Error) {
	e := c.enis[r.text("NetworkInterfaceId")]
	if e == nil {
		return nil, notFound("NetworkInterfaceID", r.text("NetworkInterfaceId"))
	}
	addresses, prefixes := r.list("PrivateIpAddress"), r.list("Ipv4Prefix")
	if err := e.holds(addresses, prefixes); err != nil {
		return nil, err
	}
	next := *e
	next.singles = slices.DeleteFunc(slices.Clone(e.singles), func(a string) bool { return slices.Contains(addresses, a) })
	next.prefixes = slices.DeleteFunc(slices.Clone(e.prefixes), func(p string) bool { return slices.Contains(prefixes, p) })
	c.put(&next)
	for _, a := range addresses {
		c.disassociateAddress(a)
	}
	if s := c.subnets[e.subnet]; s != nil {
		s.release(addresses...)
		s.releasePrefixes(prefixes...)
	}
	return done, nil
}

// holds checks that addresses, or prefixes, can be unassigned. EC2 refuses all of them if the interface does not have one: an address
// of a prefix is none of its own.
func (e *eni) holds(addresses, prefixes []string) *Error {
	switch {
	case len(addresses)+len(prefixes) == 0:
		return &Error{Code: "MissingParameter", Message: "The request must contain private IP addresses or prefixes"}
	case len(addresses) > 0 && len(prefixes) > 0:
		return &Error{Code: "InvalidParameterCombination", Message: "You cannot specify both private IP addresses and prefixes"}
	case slices.Contains(addresses, e.primary):
		return invalid("The primary private IP address %s of interface %s cannot be unassigned", e.primary, e.id)
	}
	for _, a := range addresses {
		if !slices.Contains(e.singles, a) {
			return invalid("Some of the specified addresses are not assigned to interface %s: %s", e.id, a)
		}
	}
	for _, p := range prefixes {
		if !slices.Contains(e.prefixes, p) {
			return invalid("Some of the specified prefixes are not assigned to interface %s: %s", e.id, p)
		}
	}
	return nil
}

func (c *Cloud) deleteNetworkInterface(r request) (any, *Error) {
	e := c.enis[r.text("NetworkInterfaceId")]
	switch {
	case e == nil:
		return nil, notFound("NetworkInterfaceID", r.text("NetworkInterfaceId"))
	case e.instance != "":
		return nil, invalid("Network interface '%s' is currently in use.", e.id)
	}
	c.drop(e)
	maps.DeleteFunc(c.tokens, func(_, id string) bool { return id == e.id })
	return done, nil
}
