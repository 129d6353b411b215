// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ciliumio

import (
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"

	"slices"
)

// Nodes is the stream of CiliumNodes.
var Nodes = stream.Custom[Node](v2.CiliumNodeResource).OfKind("CiliumNode")

// Node is what duties read of a CiliumNode.
type Node struct {
	NodeMeta       `json:"metadata"`
	slim.Undecoded `json:"-"`
	Spec           NodeSpec   `json:"spec"`
	Status         NodeStatus `json:"status"`
}

// NodeMeta is the metadata of a CiliumNode.
type NodeMeta struct {
	slim.Meta
	Annotations       slim.Subset[slim.CiliumAnnotations] `json:"annotations"`
	Owners            []slim.OwnerReference               `json:"ownerReferences"`
	CreationTimestamp slim.Time                           `json:"creationTimestamp"`
	DeletionTimestamp slim.Time                           `json:"deletionTimestamp"`
}

// NodeSpec is the spec of a CiliumNode.
type NodeSpec struct {
	IPAM       NodeSpecIPAM  `json:"ipam"`
	Encryption Encryption    `json:"encryption"`
	Addresses  NodeAddresses `json:"addresses"`
}

// NodeSpecIPAM is what a node hands to its pods.
type NodeSpecIPAM struct {
	PodCIDRs []string  `json:"podCIDRs"`
	Pools    NodePools `json:"pools"`
}

// NodePools is what a node needs of CiliumPodIPPools, and has of them.
type NodePools struct {
	Requested []PoolRequest    `json:"requested"`
	Allocated []PoolAllocation `json:"allocated"`
	// IsCut says that Allocated has more than MaxCIDRs, of which the first are kept.
	IsCut bool `json:"-"`
}

// MaxCIDRs is how many CIDRs a node may list together, of all pools, and how many it may show in each other place: more than it can have been given, and few
// enough that a hundred such nodes do not fill the memory.
const MaxCIDRs = 4096

// Trim implements slim.Trimmer.
func (n *Node) Trim() {
	ipam := &n.Spec.IPAM
	ipam.PodCIDRs = FirstCIDRs(ipam.PodCIDRs)
	n.Status.IPAM.PodCIDRs = firstOf(n.Status.IPAM.PodCIDRs, MaxCIDRs)
	ipam.Pools.IsCut = CutPools(ipam.Pools.Allocated)
}

// FirstCIDRs are those of a list that count.
func FirstCIDRs(list []string) []string { return firstOf(list, MaxCIDRs) }

// CutPools leaves those CIDRs of all pools that count, and reports whether there are more.
func CutPools(allocated []PoolAllocation) (isCut bool) {
	left := MaxCIDRs
	for i, of := range allocated {
		if len(of.CIDRs) > left {
			isCut = true
			allocated[i].CIDRs = firstOf(of.CIDRs, left)
		}
		left = max(0, left-len(of.CIDRs))
	}
	return isCut
}

// firstOf are the first items of a list, which does not keep the others in memory.
func firstOf[S ~[]E, E any](list S, most int) S {
	if len(list) <= most {
		return list
	}
	return slices.Clone(list[:most])
}

// PoolRequest is how many addresses of a pool the agent of a node needs.
type PoolRequest struct {
	Pool   string     `json:"pool"`
	Needed PoolDemand `json:"needed"`
}

// PoolDemand is a number of addresses of each family.
type PoolDemand struct {
	IPv4Addrs int64 `json:"ipv4-addrs"`
	IPv6Addrs int64 `json:"ipv6-addrs"`
}

// PoolAllocation are the CIDRs of a pool that a node has.
type PoolAllocation struct {
	Pool  string   `json:"pool"`
	CIDRs []string `json:"cidrs"`
	// Whether pods use the first and the last address of each CIDR.
	AllowFirstIP bool `json:"allowFirstIP"`
	AllowLastIP  bool `json:"allowLastIP"`
}

// NodeStatus is the status of a CiliumNode.
type NodeStatus struct {
	IPAM NodeStatusIPAM `json:"ipam"`
}

// NodeStatusIPAM is what became of a node's wishes for addresses.
type NodeStatusIPAM struct {
	PodCIDRs       UsedCIDRs      `json:"pod-cidrs"`
	OperatorStatus OperatorStatus `json:"operator-status"`
}

// OperatorStatus is what the operator tells a node.
type OperatorStatus struct {
	Error string `json:"error"`
}
