// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2

// IPAMSpec is what a node may hand to its pods, and how much of it shall be kept ready.
type IPAMSpec struct {
	// IPv4 addresses that the node may use, by address.
	Pool map[string]AllocationIP `json:"pool,omitempty"`
	// IPv6 addresses that the node may use, by address.
	IPv6Pool map[string]AllocationIP `json:"ipv6-pool,omitempty"`
	// Ranges taken from pools that are shared between nodes.
	Pools IPAMPools `json:"pools,omitzero"`
	// Ranges that belong to the node alone.
	PodCIDRs []string `json:"podCIDRs,omitempty"`
	// Number of addresses that the node has at least, used or not.
	//
	// +kubebuilder:validation:Minimum=0
	MinAllocate int `json:"min-allocate,omitempty"`
	// Number of addresses that the node has at most; 0 means as many as the provider allows.
	//
	// +kubebuilder:validation:Minimum=0
	MaxAllocate int `json:"max-allocate,omitempty"`
	// Number of free addresses to keep ready; 0 means the provider's usual number.
	//
	// +kubebuilder:validation:Minimum=0
	PreAllocate int `json:"pre-allocate,omitempty"`
	// Number of free addresses beyond those kept ready that are not given back.
	//
	// +kubebuilder:validation:Minimum=0
	MaxAboveWatermark int `json:"max-above-watermark,omitempty"`
	// Tags that pick the public address of the node.
	StaticIPTags map[string]string `json:"static-ip-tags,omitempty"`
}

// AllocationIP says whom an address belongs to.
type AllocationIP struct {
	// User of the address, as namespace/pod or a free text of the agent.
	Owner string `json:"owner,omitempty"`
	// What the address is attached to, such as the identifier of a network interface.
	Resource string `json:"resource,omitempty"`
}

// IPAMPools is what a node wants and has from pools that are shared between nodes.
type IPAMPools struct {
	// What the agent asks for, by pool.
	Requested []IPAMPoolRequest `json:"requested,omitempty"`
	// What the node has been given, by pool.
	Allocated []IPAMPoolAllocation `json:"allocated,omitempty"`
}

// IPAMPoolRequest is what a node asks of one pool.
type IPAMPoolRequest struct {
	// Name of the pool.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	Pool string `json:"pool"`
	// Number of addresses wanted.
	Needed IPAMPoolDemand `json:"needed,omitzero"`
}

// IPAMPoolDemand is a number of addresses of each family.
type IPAMPoolDemand struct {
	// Number of IPv4 addresses.
	IPv4Addrs int `json:"ipv4-addrs,omitempty"`
	// Number of IPv6 addresses.
	IPv6Addrs int `json:"ipv6-addrs,omitempty"`
}

// IPAMPoolAllocation is what a node has been given from one pool.
type IPAMPoolAllocation struct {
	// Name of the pool.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	Pool string `json:"pool"`
	// Ranges of either family.
	//
	// +kubebuilder:validation:items:Format=cidr
	CIDRs []string `json:"cidrs,omitempty"`
	// Whether the first address of each range goes to a pod as well.
	AllowFirstIP bool `json:"allowFirstIP,omitempty"`
	// Whether the last address of each range goes to a pod as well.
	AllowLastIP bool `json:"allowLastIP,omitempty"`
}

// IPAMStatus is the state of the addresses of a node.
type IPAMStatus struct {
	// IPv4 addresses in use, by address.
	// Present but empty once the operator has seen a node that uses none.
	Used map[string]AllocationIP `json:"used,omitzero"`
	// IPv6 addresses in use, by address.
	IPv6Used map[string]AllocationIP `json:"ipv6-used,omitempty"`
	// State of the ranges of the node, by range.
	PodCIDRs map[string]PodCIDRState `json:"pod-cidrs,omitempty"`
	// What the operator has to say about the node's addresses.
	OperatorStatus OperatorStatus `json:"operator-status,omitzero"`
	// How far surplus IPv4 addresses are on their way back, by address.
	ReleaseIPs map[string]IPReleaseStatus `json:"release-ips,omitempty"`
	// How far surplus IPv6 addresses are on their way back, by address.
	ReleaseIPv6s map[string]IPReleaseStatus `json:"release-ipv6s,omitempty"`
	// Public address that was picked by tags.
	AssignedStaticIP string `json:"assigned-static-ip,omitempty"`
}

// PodCIDRState is the state of one range of a node.
type PodCIDRState struct {
	// How far the range is used.
	Status PodCIDRStatus `json:"status,omitempty"`
}

// PodCIDRStatus says how far a range of a node is used.
//
// +kubebuilder:validation:Enum=released;depleted;in-use
type PodCIDRStatus string

// The states of a range.
const (
	PodCIDRReleased PodCIDRStatus = "released"
	PodCIDRDepleted PodCIDRStatus = "depleted"
	PodCIDRInUse    PodCIDRStatus = "in-use"
)

// OperatorStatus is what the operator has to say about the addresses of a node.
type OperatorStatus struct {
	// Why the last allocation failed; empty when it did not.
	Error string `json:"error,omitempty"`
}

// IPReleaseStatus says how far an address is on its way back to the provider.
// The operator marks, the agent answers, the operator releases.
//
// +kubebuilder:validation:Enum=marked-for-release;ready-for-release;do-not-release;released
type IPReleaseStatus string

// The states of an address that is on its way back.
const (
	IPMarkedForRelease IPReleaseStatus = "marked-for-release"
	IPReadyForRelease  IPReleaseStatus = "ready-for-release"
	IPDoNotRelease     IPReleaseStatus = "do-not-release"
	IPReleased         IPReleaseStatus = "released"
)
