// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// CiliumNodeConfig sets options of the agents on chosen nodes; v2 has taken its place.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ciliumnodeconfigs,singular=ciliumnodeconfig,scope=Namespaced,categories={cilium}
// +kubebuilder:deprecatedversion:warning="cilium.io/v2alpha1 CiliumNodeConfig will be deprecated in cilium v1.16; use cilium.io/v2 CiliumNodeConfig"
type CiliumNodeConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// The options and the nodes.
	//
	// +required
	Spec v2.CiliumNodeConfigSpec `json:"spec"`
}

// CiliumNodeConfigList is a list of CiliumNodeConfigs.
//
// +kubebuilder:object:root=true
type CiliumNodeConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []CiliumNodeConfig `json:"items"`
}
