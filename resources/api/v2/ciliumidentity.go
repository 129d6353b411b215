// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CiliumIdentity is the security identity that all pods with the same labels share.
// Its name is its number.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ciliumidentities,singular=ciliumidentity,scope=Cluster,shortName={ciliumid},categories={cilium}
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.metadata.labels.io\.kubernetes\.pod\.namespace`,description="Namespace of the pods that bear the identity"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the identity was made"
type CiliumIdentity struct {
	metav1.TypeMeta `json:",inline"`
	// +required
	metav1.ObjectMeta `json:"metadata"`

	// Labels that make the identity, by source:key; they never change.
	//
	// +required
	SecurityLabels map[string]string `json:"security-labels"`
}

// CiliumIdentityList is a list of CiliumIdentities.
//
// +kubebuilder:object:root=true
type CiliumIdentityList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []CiliumIdentity `json:"items"`
}
