// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// CiliumBGPPeerConfig is a set of settings for speaking to peers; v2 has taken its place.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ciliumbgppeerconfigs,singular=ciliumbgppeerconfig,scope=Cluster,shortName={cbgppeer},categories={cilium,ciliumbgp}
// +kubebuilder:deprecatedversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the settings were made"
type CiliumBGPPeerConfig struct {
	metav1.TypeMeta `json:",inline"`
	// +required
	metav1.ObjectMeta `json:"metadata"`

	// The settings.
	//
	// +required
	Spec v2.CiliumBGPPeerConfigSpec `json:"spec"`
	// What the operator reports about the settings.
	Status v2.CiliumBGPPeerConfigStatus `json:"status,omitzero"`
}

// CiliumBGPPeerConfigList is a list of CiliumBGPPeerConfigs.
//
// +kubebuilder:object:root=true
type CiliumBGPPeerConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []CiliumBGPPeerConfig `json:"items"`
}
