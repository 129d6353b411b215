// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CiliumNetworkPolicy says what traffic pods of its namespace may have.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ciliumnetworkpolicies,singular=ciliumnetworkpolicy,scope=Namespaced,shortName={cnp,ciliumnp},categories={cilium,ciliumpolicy}
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the policy was made"
// +kubebuilder:printcolumn:name="Valid",type=string,JSONPath=`.status.conditions[?(@.type=='Valid')].status`,description="Whether all rules of the policy can be enforced"
type CiliumNetworkPolicy struct {
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

// CiliumNetworkPolicyList is a list of CiliumNetworkPolicies.
//
// +kubebuilder:object:root=true
type CiliumNetworkPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []CiliumNetworkPolicy `json:"items"`
}

// CiliumNetworkPolicyStatus is what the operator and the agents report about a policy.
type CiliumNetworkPolicyStatus struct {
	// Policies that the operator has made out of this one, by name.
	DerivativePolicies map[string]DerivativePolicyStatus `json:"derivativePolicies,omitempty"`
	// Findings about the policy, by type.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []NetworkPolicyCondition `json:"conditions,omitempty"`
}

// DerivativePolicyStatus says how the making of a derived policy has gone.
type DerivativePolicyStatus struct {
	// Whether the derived policy is as it should be.
	OK bool `json:"ok,omitempty"`
	// Why it is not.
	Error string `json:"error,omitempty"`
	// Time of the last change of this entry.
	LastUpdated metav1.Time `json:"lastUpdated,omitzero"`
	// Revision of the agent's policies that holds the policy.
	Revision int64 `json:"localPolicyRevision,omitempty"`
	// Whether the policy is in force.
	Enforcing bool `json:"enforcing,omitempty"`
	// Annotations of the policy when this entry was made.
	Annotations map[string]string `json:"annotations,omitempty"`
}

// NetworkPolicyConditionType names a finding about a policy.
type NetworkPolicyConditionType string

// PolicyConditionValid tells whether all rules of a policy can be enforced.
const PolicyConditionValid NetworkPolicyConditionType = "Valid"

// NetworkPolicyCondition is a finding about a policy.
type NetworkPolicyCondition struct {
	// What the finding is about.
	//
	// +required
	Type NetworkPolicyConditionType `json:"type"`
	// Whether it holds: True, False or Unknown.
	//
	// +required
	Status metav1.ConditionStatus `json:"status"`
	// Time of the last change of status.
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`
	// Why it holds or does not, in one word.
	Reason string `json:"reason,omitempty"`
	// Why it holds or does not, for people.
	Message string `json:"message,omitempty"`
}
