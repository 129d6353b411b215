// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CiliumCIDRGroup is a set of address ranges that policies refer to by name.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ciliumcidrgroups,singular=ciliumcidrgroup,scope=Cluster,shortName={ccg},categories={cilium}
// +kubebuilder:storageversion
type CiliumCIDRGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// The ranges.
	//
	// +required
	Spec CiliumCIDRGroupSpec `json:"spec"`
}

// CiliumCIDRGroupList is a list of CiliumCIDRGroups.
//
// +kubebuilder:object:root=true
type CiliumCIDRGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []CiliumCIDRGroup `json:"items"`
}

// CiliumCIDRGroupSpec is a set of address ranges.
type CiliumCIDRGroupSpec struct {
	// Ranges outside the cluster.
	//
	// +required
	// +kubebuilder:validation:MinItems=0
	// +kubebuilder:validation:items:Format=cidr
	ExternalCIDRs []string `json:"externalCIDRs"`
}
