// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package multipool

import (
	"github.com/skep-operator/skep/resources/api/v2alpha1"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

var podIPPools = stream.Custom[podIPPool](v2alpha1.CiliumPodIPPoolResource).OfKind("CiliumPodIPPool")

// podIPPool is what this duty reads of a CiliumPodIPPool.
type podIPPool struct {
	podIPPoolMeta  `json:"metadata"`
	slim.Undecoded `json:"-"`
	Spec           podIPPoolSpec `json:"spec"`
}

type podIPPoolMeta struct {
	slim.Meta
	CreationTimestamp slim.Time `json:"creationTimestamp"`
}

type podIPPoolSpec struct {
	IPv4 *familySpec `json:"ipv4"`
	IPv6 *familySpec `json:"ipv6"`

	AllowFirstIP bool `json:"allowFirstIP"`
	AllowLastIP  bool `json:"allowLastIP"`
}

// familySpec is one address family of a pool.
type familySpec struct {
	CIDRs    []string `json:"cidrs"`
	MaskSize int64    `json:"maskSize"`
}
