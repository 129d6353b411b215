// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// CiliumCIDRGroup is a set of address ranges that policies refer to by name; v2 has taken its place.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ciliumcidrgroups,singular=ciliumcidrgroup,scope=Cluster,shortName={ccg},categories={cilium}
// +kubebuilder:deprecatedversion
type CiliumCIDRGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// The ranges.
	//
	// +required
	Spec v2.CiliumCIDRGroupSpec `json:"spec"`
}

// CiliumCIDRGroupList is a list of CiliumCIDRGroups.
//
// +kubebuilder:object:root=true
type CiliumCIDRGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []CiliumCIDRGroup `json:"items"`
}
