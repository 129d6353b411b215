// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2

// AzureSpec is what is wished of the network interfaces of a node on Azure.
type AzureSpec struct {
	// Name of the only interface to use; all of them when it is empty.
	InterfaceName string `json:"interface-name,omitempty"`
}

// AzureStatus is the state of the network interfaces of a node on Azure.
type AzureStatus struct {
	// Interfaces of the machine.
	Interfaces []AzureInterface `json:"interfaces,omitempty"`
}

// AzureInterface is a network interface on Azure.
type AzureInterface struct {
	// Identifier of the interface.
	ID string `json:"id,omitempty"`
	// Name of the interface.
	Name string `json:"name,omitempty"`
	// Hardware address of the interface.
	MAC string `json:"mac,omitempty"`
	// Provisioning state of the interface.
	State string `json:"state,omitempty"`
	// Addresses of the interface.
	Addresses []AzureAddress `json:"addresses,omitempty"`
	// Security group of the interface.
	SecurityGroup string `json:"security-group,omitempty"`
	// Older spelling of gateway, written for agents that read it.
	GatewayIP string `json:"GatewayIP,omitempty"`
	// Address of the router of the interface's subnet; written even when it is not known.
	Gateway string `json:"gateway"`
	// Range of the interface's subnet.
	CIDR string `json:"cidr,omitempty"`
	// Primary address of the interface.
	IP string `json:"ip,omitempty"`
	// Subnet of the interface.
	Subnet AzureSubnet `json:"subnet,omitzero"`
}

// AzureSubnet is a subnet on Azure.
type AzureSubnet struct {
	// Identifier of the subnet.
	ID string `json:"id,omitempty"`
	// Range of the subnet.
	CIDR string `json:"cidr,omitempty"`
}

// AzureAddress is an address of an interface on Azure.
type AzureAddress struct {
	// The address.
	IP string `json:"ip,omitempty"`
	// Identifier of the subnet that the address is from.
	Subnet string `json:"subnet,omitempty"`
	// Provisioning state of the address.
	State string `json:"state,omitempty"`
}
