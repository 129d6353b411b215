// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2

// ENISpec is what is wished of the network interfaces of a node on AWS.
type ENISpec struct {
	// Identifier of the instance; superseded by the instance-id of the node.
	InstanceID string `json:"instance-id,omitempty"`
	// Type of the instance, which limits its interfaces and addresses.
	InstanceType string `json:"instance-type,omitempty"`
	// Superseded by the min-allocate of the node's ipam.
	//
	// +kubebuilder:validation:Minimum=0
	MinAllocate int `json:"min-allocate,omitempty"`
	// Superseded by the pre-allocate of the node's ipam.
	//
	// +kubebuilder:validation:Minimum=0
	PreAllocate int `json:"pre-allocate,omitempty"`
	// Superseded by the max-above-watermark of the node's ipam.
	//
	// +kubebuilder:validation:Minimum=0
	MaxAboveWatermark int `json:"max-above-watermark,omitempty"`
	// Device index of the first interface whose addresses go to pods.
	//
	// +kubebuilder:validation:Minimum=0
	FirstInterfaceIndex *int `json:"first-interface-index,omitempty"`
	// Security groups for new interfaces.
	SecurityGroups []string `json:"security-groups,omitempty"`
	// Tags that pick the security groups for new interfaces when none are named.
	SecurityGroupTags map[string]string `json:"security-group-tags,omitempty"`
	// Subnets in which new interfaces may be made.
	SubnetIDs []string `json:"subnet-ids,omitempty"`
	// Tags that pick the subnets for new interfaces when none are named.
	SubnetTags map[string]string `json:"subnet-tags,omitempty"`
	// Subnet of the instance's primary interface.
	NodeSubnetID string `json:"node-subnet-id,omitempty"`
	// VPC of the instance.
	VPCID string `json:"vpc-id,omitempty"`
	// Availability zone of the instance.
	AvailabilityZone string `json:"availability-zone,omitempty"`
	// Interfaces that bear all of these tags are left alone.
	ExcludeInterfaceTags map[string]string `json:"exclude-interface-tags,omitempty"`
	// Whether new interfaces go away with the instance; they do unless this is false.
	DeleteOnTermination *bool `json:"delete-on-termination,omitempty"`
	// Whether the primary address of an interface may go to a pod as well.
	UsePrimaryAddress bool `json:"use-primary-address,omitempty"`
	// Whether the node takes single addresses even where prefixes are on.
	DisablePrefixDelegation bool `json:"disable-prefix-delegation,omitempty"`
}

// ENIStatus is the state of the network interfaces of a node on AWS.
type ENIStatus struct {
	// Interfaces of the instance, by identifier.
	ENIs map[string]ENI `json:"enis,omitempty"`
}

// ENI is an elastic network interface.
type ENI struct {
	// Identifier of the interface.
	ID string `json:"id,omitempty"`
	// Primary address of the interface.
	IP string `json:"ip,omitempty"`
	// Hardware address of the interface.
	MAC string `json:"mac,omitempty"`
	// Availability zone of the interface.
	AvailabilityZone string `json:"availability-zone,omitempty"`
	// Description given to the interface when it was made.
	Description string `json:"description,omitempty"`
	// Device index at which the interface is attached.
	Number int `json:"number,omitempty"`
	// Subnet of the interface.
	Subnet AWSSubnet `json:"subnet,omitzero"`
	// VPC of the interface.
	VPC AWSVPC `json:"vpc,omitzero"`
	// Addresses that may go to pods, those out of prefixes included.
	Addresses []string `json:"addresses,omitempty"`
	// Prefixes delegated to the interface.
	Prefixes []string `json:"prefixes,omitempty"`
	// IPv6 prefixes delegated to the interface.
	IPv6Prefixes []string `json:"ipv6-prefixes,omitempty"`
	// Security groups of the interface.
	SecurityGroups []string `json:"security-groups,omitempty"`
	// Tags of the interface.
	Tags map[string]string `json:"tags,omitempty"`
	// Public address of the interface.
	PublicIP string `json:"public-ip,omitempty"`
}

// AWSSubnet is a subnet on AWS.
type AWSSubnet struct {
	// Identifier of the subnet.
	ID string `json:"id,omitempty"`
	// Range of the subnet.
	CIDR string `json:"cidr,omitempty"`
}

// AWSVPC is a virtual private cloud on AWS.
type AWSVPC struct {
	// Identifier of the VPC.
	ID string `json:"id,omitempty"`
	// First range of the VPC.
	PrimaryCIDR string `json:"primary-cidr,omitempty"`
	// Further ranges of the VPC.
	CIDRs []string `json:"cidrs,omitempty"`
}
