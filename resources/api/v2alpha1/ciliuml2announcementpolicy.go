// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// CiliumL2AnnouncementPolicy says which nodes answer for the addresses of which Services on the local network.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ciliuml2announcementpolicies,singular=ciliuml2announcementpolicy,scope=Cluster,shortName={l2announcement},categories={cilium}
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the policy was made"
type CiliumL2AnnouncementPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +required
	metav1.ObjectMeta `json:"metadata"`

	// What the policy says.
	Spec CiliumL2AnnouncementPolicySpec `json:"spec,omitzero"`
	// What the agents report about the policy.
	Status CiliumL2AnnouncementPolicyStatus `json:"status,omitzero"`
}

// CiliumL2AnnouncementPolicyList is a list of CiliumL2AnnouncementPolicies.
//
// +kubebuilder:object:root=true
type CiliumL2AnnouncementPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []CiliumL2AnnouncementPolicy `json:"items"`
}

// CiliumL2AnnouncementPolicySpec says which nodes answer for the addresses of which Services.
type CiliumL2AnnouncementPolicySpec struct {
	// Nodes that may answer; all when it is absent.
	NodeSelector *v2.LabelSelector `json:"nodeSelector,omitempty"`
	// Services whose addresses are meant; all when it is absent.
	ServiceSelector *v2.LabelSelector `json:"serviceSelector,omitempty"`
	// Whether addresses that a load balancer has given are meant.
	LoadBalancerIPs bool `json:"loadBalancerIPs,omitempty"`
	// Whether addresses out of externalIPs are meant.
	ExternalIPs bool `json:"externalIPs,omitempty"`
	// Regular expressions for the network interfaces to answer on; all when there are none.
	Interfaces []string `json:"interfaces,omitempty"`
}

// CiliumL2AnnouncementPolicyStatus is what the agents report about a policy.
type CiliumL2AnnouncementPolicyStatus struct {
	// Findings, by type.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
