// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// CiliumPodIPPool is a pool of addresses out of which nodes are given ranges for their pods.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ciliumpodippools,singular=ciliumpodippool,scope=Cluster,shortName={cpip},categories={cilium}
type CiliumPodIPPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// The addresses.
	//
	// +required
	Spec CiliumPodIPPoolSpec `json:"spec"`
}

// CiliumPodIPPoolList is a list of CiliumPodIPPools.
//
// +kubebuilder:object:root=true
type CiliumPodIPPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []CiliumPodIPPool `json:"items"`
}

// CiliumPodIPPoolSpec is the addresses of a pool; either family may be missing.
type CiliumPodIPPoolSpec struct {
	// IPv4 addresses.
	IPv4 *IPv4PoolSpec `json:"ipv4,omitempty"`
	// IPv6 addresses.
	IPv6 *IPv6PoolSpec `json:"ipv6,omitempty"`
	// Pods that take their addresses from the pool without being told to.
	PodSelector *v2.LabelSelector `json:"podSelector,omitempty"`
	// Namespaces whose pods take their addresses from the pool without being told to.
	NamespaceSelector *v2.LabelSelector `json:"namespaceSelector,omitempty"`
	// Whether the first address of each range goes to a pod as well.
	//
	// +kubebuilder:default=false
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="allowFirstIP is immutable"
	AllowFirstIP bool `json:"allowFirstIP,omitempty"`
	// Whether the last address of each range goes to a pod as well.
	//
	// +kubebuilder:default=false
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="allowLastIP is immutable"
	AllowLastIP bool `json:"allowLastIP,omitempty"`
}

// IPv4PoolSpec is the IPv4 addresses of a pool.
type IPv4PoolSpec struct {
	// Ranges that the pool is made of.
	//
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:items:Format=cidr
	CIDRs []string `json:"cidrs"`
	// Prefix length of the range that a node is given at a time.
	//
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=32
	MaskSize int `json:"maskSize"`
}

// IPv6PoolSpec is the IPv6 addresses of a pool.
type IPv6PoolSpec struct {
	// Ranges that the pool is made of.
	//
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:items:Format=cidr
	CIDRs []string `json:"cidrs"`
	// Prefix length of the range that a node is given at a time.
	//
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=128
	MaskSize int `json:"maskSize"`
}
