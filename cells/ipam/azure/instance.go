// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package azure

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v8"

	"github.com/skep-operator/skep/resources/cloudipam"
)

// nic is what is read of a network interface.
type nic struct {
	name, mac, securityGroup string
	subnet, cidr, gateway    string // see subnetOf
	primary                  bool
	ip                       string     // its primary address
	addresses                []ipConfig // IPv4
	listed                   []ipConfig // those that are published
	all                      int        // ipConfigurations, whatever they are
}

// ipConfig is an ipConfiguration with an address.
type ipConfig struct {
	name, address string
	subnet        string // as Azure sends it
	state         string // in lower case
}

// vnetSubnet is what is read of a subnet.
type vnetSubnet struct {
	cidr, gateway string
	ranges        []netip.Prefix // of IPv4, the first of which cidr is
	reserved      bool           // for a service of Azure
	// missed is how many complete reads could not read it since; isUnread is that nothing but its id is known.
	missed   int
	isUnread bool
}

// subnets are those that are known, by id in lower case.
type subnets map[string]cloudipam.Subnet

// byID are the subnets that were read, by id as Azure sends it.
func (s subnets) byID() map[string]cloudipam.Subnet {
	all := make(map[string]cloudipam.Subnet, len(s))
	for _, of := range s {
		if !of.Detail.(vnetSubnet).isUnread {
			all[of.ID] = of
		}
	}
	return all
}

// rangeOf is what is known of a subnet by its id, false if its IPv4 range is not.
func (s subnets) rangeOf(id string) (vnetSubnet, bool) {
	of, _ := s[strings.ToLower(id)].Detail.(vnetSubnet)
	return of, of.cidr != ""
}

// rangesOf are the ranges of IPv4 of subnets, none if those of one are not known.
func (s subnets) rangesOf(ids []string) (all []netip.Prefix) {
	for _, id := range ids {
		of, ok := s.rangeOf(id)
		if !ok {
			return nil
		}
		all = append(all, of.ranges...)
	}
	return all
}

// reservedAddresses are those of each subnet that Azure keeps.
const reservedAddresses = 5

// subnetsOf reads virtual networks.
func subnetsOf(networks []*armnetwork.VirtualNetwork) subnets {
	all := subnets{}
	for _, n := range networks {
		if n == nil || n.Properties == nil {
			continue
		}
		for _, s := range n.Properties.Subnets {
			if s == nil || s.Properties == nil || deref(s.ID) == "" {
				continue
			}
			all[strings.ToLower(*s.ID)] = subnetFrom(*s.ID, s.Properties)
		}
	}
	return all
}

// subnetFrom reads a subnet.
func subnetFrom(id string, s *armnetwork.SubnetPropertiesFormat) cloudipam.Subnet {
	of, detail := cloudipam.Subnet{ID: id}, vnetSubnet{reserved: len(s.Delegations) > 0}
	if detail.ranges = ipv4Of(s); len(detail.ranges) > 0 {
		p := detail.ranges[0]
		detail.cidr, detail.gateway = p.Masked().String(), p.Masked().Addr().Next().String()
		of.Free = max(0, 1<<(32-p.Bits())-reservedAddresses-len(s.IPConfigurations))
	}
	of.Detail = detail
	return of
}

// ipv4Of are the IPv4 ranges of a subnet.
func ipv4Of(s *armnetwork.SubnetPropertiesFormat) (ranges []netip.Prefix) {
	for _, text := range append([]*string{s.AddressPrefix}, s.AddressPrefixes...) {
		if p, err := netip.ParsePrefix(deref(text)); err == nil && p.Addr().Is4() {
			ranges = append(ranges, p)
		}
	}
	return ranges
}

// instancesOf groups network interfaces by machine. Those without a machine are left out.
func (c Config) instancesOf(nics []*armnetwork.Interface, known subnets) map[string]*cloudipam.Instance {
	all := map[string]*cloudipam.Instance{}
	seen := map[string]bool{}
	for _, n := range nics {
		if n == nil || n.Properties == nil || n.Properties.VirtualMachine == nil || deref(n.ID) == "" || seen[strings.ToLower(*n.ID)] {
			continue
		}
		id := strings.ToLower(deref(n.Properties.VirtualMachine.ID))
		if id == "" {
			continue
		}
		seen[strings.ToLower(*n.ID)] = true
		if all[id] == nil {
			all[id] = &cloudipam.Instance{ID: id}
		}
		all[id].Interfaces = append(all[id].Interfaces, c.interfaceOf(n, known))
	}
	for _, i := range all {
		slices.SortFunc(i.Interfaces, func(a, b cloudipam.Interface) int {
			if a, b := nicOf(a).primary, nicOf(b).primary; a != b {
				if a {
					return -1
				}
				return 1
			}
			return cmp.Compare(a.ID, b.ID)
		})
	}
	return all
}

// nicOf is the detail of an interface.
func nicOf(i cloudipam.Interface) nic { return i.Detail.(nic) }

// interfaceOf reads a network interface.
func (c Config) interfaceOf(n *armnetwork.Interface, known subnets) cloudipam.Interface {
	of := nic{
		name: deref(n.Name), mac: strings.ReplaceAll(deref(n.Properties.MacAddress), "-", ":"),
		primary: deref(n.Properties.Primary), all: len(n.Properties.IPConfigurations),
	}
	if g := n.Properties.NetworkSecurityGroup; g != nil {
		of.securityGroup = deref(g.ID)
	}
	i := cloudipam.Interface{ID: *n.ID}
	for _, config := range n.Properties.IPConfigurations {
		if config == nil || config.Properties == nil {
			continue
		}
		p := config.Properties
		if text := deref(p.PrivateIPAddress); !cloudipam.IsForPods(text) {
			if text != "" && !isIPv6(text) {
				i.Addresses = append(i.Addresses, text) // which the engine reports
			}
			continue
		}
		address := ipConfig{name: deref(config.Name), address: *p.PrivateIPAddress, state: strings.ToLower(string(deref(p.ProvisioningState)))}
		if p.Subnet != nil {
			address.subnet = deref(p.Subnet.ID)
		}
		of.addresses = append(of.addresses, address)
		if deref(p.Primary) {
			of.ip = address.address
			if !c.AzureUsePrimaryAddress {
				i.Own = append(i.Own, address.address)
				continue
			}
		}
		of.listed = append(of.listed, address)
		i.Addresses = append(i.Addresses, address.address)
	}
	var subnet vnetSubnet
	of.subnet, subnet = of.subnetOf(known)
	of.cidr, of.gateway = subnet.cidr, subnet.gateway
	if order := of.subnets(); len(order) > 0 {
		i.Subnet = order[0]
		if s, ok := known[strings.ToLower(order[0])]; ok {
			i.Subnet = s.ID
		}
		i.Ranges, i.Network = known.rangesOf(order), networkOf(order[0])
	}
	i.Detail = of
	return i
}

// subnetOf is the subnet that is published: that of the last of the listed addresses whose range is known, or else of the primary
// address, which is all that a new machine has. If no range is known it is the first one.
func (n nic) subnetOf(known subnets) (id string, of vnetSubnet) {
	for _, list := range [][]ipConfig{n.listed, n.addresses} {
		for _, a := range slices.Backward(list) {
			if of, ok := known.rangeOf(a.subnet); ok {
				return a.subnet, of
			}
		}
	}
	if order := n.subnets(); len(order) > 0 {
		return order[0], of
	}
	return "", of
}

// subnets are those of the addresses, in order: of listed ones first. That of the primary address is the one that a new
// machine has.
func (n nic) subnets() (ids []string) {
	for _, of := range [][]ipConfig{n.listed, n.addresses} {
		for _, a := range of {
			if a.subnet != "" && !slices.Contains(ids, a.subnet) {
				ids = append(ids, a.subnet)
			}
		}
	}
	return ids
}

// isIPv6 reports whether a text is an address of IPv6: interfaces may have both families.
func isIPv6(text string) bool {
	a, err := netip.ParseAddr(text)
	return err == nil && a.Is6() && !a.Is4In6()
}

// deref is what a pointer of the SDK points to.
func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
