// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package azure

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
)

const (
	// perInterface is how many ipConfigurations Azure allows on an interface, the primary one among them. It is the limit of a node,
	// too.
	perInterface = 256
	preAllocate  = 8
	// prefix begins the names of ipConfigurations that the operator adds.
	prefix = "Cilium-"
)

// Provisioning states of ipConfigurations, in lower case.
const (
	succeeded = "succeeded"
	updating  = "updating"
	failed    = "failed"
)

// Limits implements cloudipam.Provider. No interface can be attached.
func (p *provider) Limits(n *cloudipam.Node, i *cloudipam.Instance) (cloudipam.Limits, error) {
	l := cloudipam.Limits{Addresses: perInterface, Capacity: max(0, perInterface-p.config.primariesOf(i)), PreAllocate: preAllocate}
	for _, of := range usableInterfaces(n, i) {
		if unassigned(of) > 0 {
			l.Interfaces++
		}
	}
	return l, nil
}

// primariesOf is how many primary addresses of an instance are not for pods: each of them is one of its interface's 256.
func (c Config) primariesOf(i *cloudipam.Instance) (n int) {
	for _, of := range i.Interfaces {
		if nicOf(of).ip != "" && !c.AzureUsePrimaryAddress {
			n++
		}
	}
	return n
}

// usableInterfaces are those that addresses are added to: all, or the one that the agent names.
func usableInterfaces(n *cloudipam.Node, i *cloudipam.Instance) []cloudipam.Interface {
	name := n.Spec.Azure.InterfaceName
	if name == "" {
		return i.Interfaces
	}
	return slices.DeleteFunc(slices.Clone(i.Interfaces), func(of cloudipam.Interface) bool { return nicOf(of).name != name })
}

func unassigned(i cloudipam.Interface) int { return max(0, perInterface-nicOf(i).all) }

// Addresses implements cloudipam.Provider: those of all interfaces.
func (p *provider) Addresses(n *cloudipam.Node, i *cloudipam.Instance) map[string]cloudipam.Address {
	all := map[string]cloudipam.Address{}
	for _, of := range i.Interfaces {
		for _, a := range nicOf(of).listed {
			if p.config.isUsable(n, a) {
				all[a.address] = cloudipam.Address{Resource: of.ID}
			}
		}
	}
	return all
}

// isUsable reports whether an address is in the pool. One that is in use stays, whatever its state, and one that is in the
// pool stays while Azure works on its machine: its state is then updating.
func (c Config) isUsable(n *cloudipam.Node, a ipConfig) bool {
	_, isUsed := n.Status.IPAM.Used[a.address]
	_, isInPool := n.Spec.IPAM.Pool[a.address]
	switch {
	case isUsed:
		return true
	case c.AzureOnlyCiliumAddresses && !isInPool && !strings.HasPrefix(a.name, prefix):
		return false
	case isInPool && a.state == updating:
		return true
	}
	return a.state == succeeded
}

// isBeingAdded reports whether Azure is adding addresses to an interface: they are listed, and are of no use yet.
func (c Config) isBeingAdded(n *cloudipam.Node, of nic) bool {
	return slices.ContainsFunc(of.listed, func(a ipConfig) bool { return a.state == updating && !c.isUsable(n, a) })
}

// FreeInterface implements cloudipam.Provider: the first interface with room, and the first of its subnets with free
// addresses, or else another subnet of its virtual network.
func (p *provider) FreeInterface(n *cloudipam.Node, i *cloudipam.Instance, all map[string]cloudipam.Subnet) (cloudipam.Candidate, bool) {
	for _, of := range usableInterfaces(n, i) {
		if s, ok := subnetFor(nicOf(of), all); ok && unassigned(of) > 0 {
			return cloudipam.Candidate{Interface: of.ID, Subnet: s.ID, Count: min(unassigned(of), s.Free)}, true
		}
	}
	return cloudipam.Candidate{}, false
}

// subnetFor is the subnet that further addresses of an interface are taken from.
func subnetFor(n nic, all map[string]cloudipam.Subnet) (cloudipam.Subnet, bool) {
	order := n.subnets()
	for _, id := range order {
		if s, ok := subnetByID(all, id); ok && s.Free > 0 {
			return s, true
		}
	}
	if len(order) == 0 {
		return cloudipam.Subnet{}, false
	}
	others := slices.DeleteFunc(slices.Collect(maps.Values(all)), func(s cloudipam.Subnet) bool {
		return s.Free == 0 || s.Detail.(vnetSubnet).reserved || isReserved(lastOf(s.ID)) || networkOf(s.ID) != networkOf(order[0])
	})
	if len(others) == 0 {
		return cloudipam.Subnet{}, false
	}
	return slices.MinFunc(others, func(a, b cloudipam.Subnet) int { return cmp.Or(cmp.Compare(b.Free, a.Free), cmp.Compare(a.ID, b.ID)) }), true
}

// isReserved reports whether a subnet of this name is for a service of Azure, in which machines have no interface.
func isReserved(name string) bool {
	return slices.ContainsFunc([]string{"GatewaySubnet", "AzureBastionSubnet", "AzureFirewallSubnet", "AzureFirewallManagementSubnet", "RouteServerSubnet"},
		func(of string) bool { return strings.EqualFold(of, name) })
}

// subnetByID finds a subnet whose id is spelled as Azure likes.
func subnetByID(all map[string]cloudipam.Subnet, id string) (cloudipam.Subnet, bool) {
	if s, ok := all[id]; ok {
		return s, true
	}
	for other, s := range all {
		if strings.EqualFold(other, id) {
			return s, true
		}
	}
	return cloudipam.Subnet{}, false
}

// ExhaustedError implements cloudipam.Explainer.
func (p *provider) ExhaustedError(n *cloudipam.Node, i *cloudipam.Instance, all map[string]cloudipam.Subnet) error {
	usable := usableInterfaces(n, i)
	if len(usable) == 0 {
		return &cloudipam.NodeError{Status: "unableToFindInterface", Text: fmt.Sprintf("the machine has no interface %s: spec.azure.interface-name asks for it", n.Spec.Azure.InterfaceName)}
	}
	for _, of := range usable {
		if unassigned(of) == 0 {
			continue
		}
		name, order := nicOf(of).name, nicOf(of).subnets()
		if len(order) == 0 {
			return &cloudipam.NodeError{Status: "unableToFindSubnet", Text: fmt.Sprintf("interface %s has no address with a subnet", name)}
		}
		if _, known := subnetByID(all, order[0]); !known {
			return &cloudipam.NodeError{Status: "unableToFindSubnet", Text: fmt.Sprintf("subnet %s of interface %s does not exist, or the operator may not read it: Microsoft.Network/virtualNetworks/subnets/read", order[0], name)}
		}
		return &cloudipam.NodeError{Status: "unableToFindSubnet", Text: fmt.Sprintf("subnet %s of interface %s is full, and no other subnet of its virtual network has free addresses", order[0], name)}
	}
	return nil
}

// Releasable implements cloudipam.Provider: nothing is.
func (p *provider) Releasable(*cloudipam.Node, *cloudipam.Instance, func(string) bool, int) cloudipam.Surplus {
	return cloudipam.Surplus{}
}

// SetStatus implements cloudipam.Provider. What the installed definition lacks, the API server drops: GatewayIP from 1.20 on, ip and
// subnet up to 1.19.
func (p *provider) SetStatus(_ *cloudipam.Node, i *cloudipam.Instance, status *v2.CiliumNodeStatus) {
	was := status.Azure.Interfaces
	status.Azure.Interfaces = nil
	if i == nil {
		return
	}
	for _, of := range i.Interfaces {
		next := published(of)
		if next.CIDR == "" {
			keepRange(&next, was)
		}
		status.Azure.Interfaces = append(status.Azure.Interfaces, next)
	}
}

// published is an interface as the status has it.
func published(of cloudipam.Interface) v2.AzureInterface {
	n := nicOf(of)
	i := v2.AzureInterface{
		ID: of.ID, Name: n.name, MAC: n.mac, SecurityGroup: n.securityGroup, GatewayIP: n.gateway, Gateway: n.gateway, CIDR: n.cidr,
		IP: n.ip, Subnet: v2.AzureSubnet{ID: n.subnet, CIDR: n.cidr},
	}
	for _, a := range n.listed {
		i.Addresses = append(i.Addresses, v2.AzureAddress{IP: a.address, Subnet: a.subnet, State: a.state})
	}
	return i
}

// keepRange has an interface whose subnet cannot be read now keep the range that was published of this subnet: agents route by it.
func keepRange(of *v2.AzureInterface, before []v2.AzureInterface) {
	for _, was := range before {
		if was.ID != of.ID || was.CIDR == "" || !isIn(was, of.Subnet.ID) {
			continue
		}
		of.CIDR, of.Gateway, of.GatewayIP, of.Subnet.CIDR = was.CIDR, was.Gateway, was.Gateway, was.CIDR
	}
}

// isIn reports whether what was published of an interface is of a subnet. Up to 1.19 only the addresses say so.
func isIn(was v2.AzureInterface, subnet string) bool {
	if was.Subnet.ID != "" {
		return strings.EqualFold(was.Subnet.ID, subnet)
	}
	return slices.ContainsFunc(was.Addresses, func(a v2.AzureAddress) bool { return strings.EqualFold(a.Subnet, subnet) })
}
