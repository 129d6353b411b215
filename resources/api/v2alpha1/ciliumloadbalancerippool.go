// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// CiliumLoadBalancerIPPool is a pool of addresses for Services of type LoadBalancer; v2 has taken its place.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ciliumloadbalancerippools,singular=ciliumloadbalancerippool,scope=Cluster,shortName={ippools,ippool,lbippool,lbippools},categories={cilium}
// +kubebuilder:deprecatedversion
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
	Spec v2.CiliumLoadBalancerIPPoolSpec `json:"spec"`
	// What the operator reports about the pool.
	Status v2.CiliumLoadBalancerIPPoolStatus `json:"status,omitzero"`
}

// CiliumLoadBalancerIPPoolList is a list of CiliumLoadBalancerIPPools.
//
// +kubebuilder:object:root=true
type CiliumLoadBalancerIPPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []CiliumLoadBalancerIPPool `json:"items"`
}
