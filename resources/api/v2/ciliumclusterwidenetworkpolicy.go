// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CiliumClusterwideNetworkPolicy says what traffic pods of any namespace, or nodes, may have.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ciliumclusterwidenetworkpolicies,singular=ciliumclusterwidenetworkpolicy,scope=Cluster,shortName={ccnp},categories={cilium,ciliumpolicy}
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Valid",type=string,JSONPath=`.status.conditions[?(@.type=='Valid')].status`,description="Whether all rules of the policy can be enforced"
type CiliumClusterwideNetworkPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +required
	metav1.ObjectMeta `json:"metadata"`

	// The rule, when there is one.
	Spec *Rule `json:"spec,omitempty"`
	// The rules, when there are several; they add to spec.
	Specs []Rule `json:"specs,omitempty"`
	// What the operator and the agents report about the policy.
	Status CiliumNetworkPolicyStatus `json:"status,omitzero"`
}

// CiliumClusterwideNetworkPolicyList is a list of CiliumClusterwideNetworkPolicies.
//
// +kubebuilder:object:root=true
type CiliumClusterwideNetworkPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []CiliumClusterwideNetworkPolicy `json:"items"`
}
