// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CiliumLoadBalancerIPPool is a pool of addresses for Services of type LoadBalancer.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ciliumloadbalancerippools,singular=ciliumloadbalancerippool,scope=Cluster,shortName={ippools,ippool,lbippool,lbippools},categories={cilium}
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Disabled",type=boolean,JSONPath=`.spec.disabled`,description="Whether the pool gives out addresses no more"
// +kubebuilder:printcolumn:name="Conflicting",type=string,JSONPath=`.status.conditions[?(@.type=="cilium.io/PoolConflict")].status`,description="Whether the pool overlaps with another"
// +kubebuilder:printcolumn:name="IPs Available",type=string,JSONPath=`.status.conditions[?(@.type=="cilium.io/IPsAvailable")].message`,description="Number of addresses that are free"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the pool was made"
type CiliumLoadBalancerIPPool struct {
	metav1.TypeMeta `json:",inline"`
	// +required
	metav1.ObjectMeta `json:"metadata"`

	// The addresses, and who may have them.
	//
	// +required
	Spec CiliumLoadBalancerIPPoolSpec `json:"spec"`
	// What the operator reports about the pool.
	Status CiliumLoadBalancerIPPoolStatus `json:"status,omitzero"`
}

// CiliumLoadBalancerIPPoolList is a list of CiliumLoadBalancerIPPools.
//
// +kubebuilder:object:root=true
type CiliumLoadBalancerIPPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []CiliumLoadBalancerIPPool `json:"items"`
}

// CiliumLoadBalancerIPPoolSpec is the addresses of a pool and who may have them.
type CiliumLoadBalancerIPPoolSpec struct {
	// Services that may have addresses; all when it is absent.
	ServiceSelector *LabelSelector `json:"serviceSelector,omitempty"`
	// Whether the first and the last address of each range may be given out; they may unless this is No.
	AllowFirstLastIPs AllowFirstLastIPs `json:"allowFirstLastIPs,omitempty"`
	// Ranges of addresses.
	Blocks []IPPoolBlock `json:"blocks,omitempty"`
	// Whether the pool gives out addresses no more; those given out stay.
	//
	// +kubebuilder:default=false
	Disabled bool `json:"disabled,omitempty"`
}

// AllowFirstLastIPs says whether the first and the last address of a range may be given out.
//
// +kubebuilder:validation:Enum=Yes;No
type AllowFirstLastIPs string

// Whether the first and the last address may be given out.
const (
	AllowFirstLastIPsYes AllowFirstLastIPs = "Yes"
	AllowFirstLastIPsNo  AllowFirstLastIPs = "No"
)

// IPPoolBlock is a range of addresses, by its prefix or by its ends.
type IPPoolBlock struct {
	// The range as a prefix.
	//
	// +kubebuilder:validation:Format=cidr
	CIDR string `json:"cidr,omitempty"`
	// First address of the range.
	Start string `json:"start,omitempty"`
	// Last address of the range; the first is the only one when it is empty.
	Stop string `json:"stop,omitempty"`
}

// CiliumLoadBalancerIPPoolStatus is what the operator reports about a pool.
type CiliumLoadBalancerIPPoolStatus struct {
	// Findings, by type.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
