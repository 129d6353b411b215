// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodesync

import (
	"slices"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
)

var ciliumNodes = stream.Custom[node](v2.CiliumNodeResource).OfKind("CiliumNode")

// node is a CiliumNode with all that the value of its key has.
type node struct {
	nodeMeta       `json:"metadata"`
	slim.Undecoded `json:"-"`
	Spec           nodeSpec `json:"spec"`
}

type nodeMeta struct {
	slim.Meta
	Labels            slim.Labels `json:"labels"`
	Annotations       slim.Labels `json:"annotations"`
	DeletionTimestamp slim.Time   `json:"deletionTimestamp"`
}

type nodeSpec struct {
	BootID       string     `json:"bootid"`
	Addresses    []address  `json:"addresses"`
	Health       pair       `json:"health"`
	Ingress      pair       `json:"ingress"`
	Encryption   encryption `json:"encryption"`
	IPAM         ipam       `json:"ipam"`
	NodeIdentity int64      `json:"nodeidentity"`
	// isCut says that there are more addresses or CIDRs, of which the first are kept.
	isCut bool `json:"-"`
}

type address struct {
	Type slim.String `json:"type"`
	IP   string      `json:"ip"`
}

type pair struct {
	IPv4 string `json:"ipv4"`
	IPv6 string `json:"ipv6"`
}

type encryption struct {
	Key int64 `json:"key"`
}

type ipam struct {
	PodCIDRs []string `json:"podCIDRs"`
	Pools    pools    `json:"pools"`
}

type pools struct {
	Allocated []allocation `json:"allocated"`
}

type allocation struct {
	CIDRs []string `json:"cidrs"`
}

// maxAddresses is how many addresses of a node are kept.
const maxAddresses = 1024

// Trim implements slim.Trimmer.
func (n *node) Trim() {
	n.Spec.Addresses = firstOf(&n.Spec, n.Spec.Addresses, maxAddresses)
	n.Spec.IPAM.PodCIDRs = firstOf(&n.Spec, n.Spec.IPAM.PodCIDRs, ciliumio.MaxCIDRs)
	left := ciliumio.MaxCIDRs
	for i, of := range n.Spec.IPAM.Pools.Allocated {
		n.Spec.IPAM.Pools.Allocated[i].CIDRs = firstOf(&n.Spec, of.CIDRs, left)
		left = max(0, left-len(of.CIDRs))
	}
}

// firstOf are the first items of a list, which does not keep the others in memory.
func firstOf[E any](of *nodeSpec, list []E, most int) []E {
	if len(list) <= most {
		return list
	}
	of.isCut = true
	return slices.Clone(list[:most])
}
