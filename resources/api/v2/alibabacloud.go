// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2

// AlibabaCloudSpec is what is wished of the network interfaces of a node on Alibaba Cloud.
type AlibabaCloudSpec struct {
	// Type of the instance, which limits its interfaces and addresses.
	InstanceType string `json:"instance-type,omitempty"`
	// Availability zone of the instance.
	AvailabilityZone string `json:"availability-zone,omitempty"`
	// VPC of the instance.
	VPCID string `json:"vpc-id,omitempty"`
	// Range of the VPC.
	CIDRBlock string `json:"cidr-block,omitempty"`
	// Switches on which new interfaces may be made.
	VSwitches []string `json:"vswitches,omitempty"`
	// Tags that pick the switches for new interfaces when none are named.
	VSwitchTags map[string]string `json:"vswitch-tags,omitempty"`
	// Security groups for new interfaces.
	SecurityGroups []string `json:"security-groups,omitempty"`
	// Tags that pick the security groups for new interfaces when none are named.
	SecurityGroupTags map[string]string `json:"security-group-tags,omitempty"`
}

// AlibabaCloudStatus is the state of the network interfaces of a node on Alibaba Cloud.
type AlibabaCloudStatus struct {
	// Interfaces of the instance, by identifier.
	ENIs map[string]AlibabaCloudENI `json:"enis,omitempty"`
}

// AlibabaCloudENI is a network interface on Alibaba Cloud.
type AlibabaCloudENI struct {
	// Identifier of the interface.
	NetworkInterfaceID string `json:"network-interface-id,omitempty"`
	// Hardware address of the interface.
	MACAddress string `json:"mac-address,omitempty"`
	// Whether the interface is a primary or a secondary one.
	Type string `json:"type,omitempty"`
	// Instance that the interface is attached to.
	InstanceID string `json:"instance-id,omitempty"`
	// Security groups of the interface.
	SecurityGroupIDs []string `json:"security-groupids,omitempty"`
	// VPC of the interface.
	VPC AlibabaCloudVPC `json:"vpc,omitzero"`
	// Availability zone of the interface.
	ZoneID string `json:"zone-id,omitempty"`
	// Switch of the interface.
	VSwitch AlibabaCloudVSwitch `json:"vswitch,omitzero"`
	// Primary address of the interface.
	PrimaryIPAddress string `json:"primary-ip-address,omitempty"`
	// Addresses of the interface.
	PrivateIPSets []AlibabaCloudPrivateIP `json:"private-ipsets,omitempty"`
	// Tags of the interface.
	Tags map[string]string `json:"tags,omitempty"`
}

// AlibabaCloudVPC is a virtual private cloud on Alibaba Cloud.
type AlibabaCloudVPC struct {
	// Identifier of the VPC.
	VPCID string `json:"vpc-id,omitempty"`
	// First IPv4 range of the VPC.
	CIDRBlock string `json:"cidr,omitempty"`
	// IPv6 range of the VPC.
	IPv6CIDRBlock string `json:"ipv6-cidr,omitempty"`
	// Further IPv4 ranges of the VPC.
	SecondaryCIDRs []string `json:"secondary-cidrs,omitempty"`
}

// AlibabaCloudVSwitch is a switch, the subnet of Alibaba Cloud.
type AlibabaCloudVSwitch struct {
	// Identifier of the switch.
	VSwitchID string `json:"vswitch-id,omitempty"`
	// IPv4 range of the switch.
	CIDRBlock string `json:"cidr,omitempty"`
	// IPv6 range of the switch.
	IPv6CIDRBlock string `json:"ipv6-cidr,omitempty"`
}

// AlibabaCloudPrivateIP is an address of an interface on Alibaba Cloud.
type AlibabaCloudPrivateIP struct {
	// The address.
	PrivateIPAddress string `json:"private-ip-address,omitempty"`
	// Whether it is the primary address of its interface.
	Primary bool `json:"primary,omitempty"`
}
