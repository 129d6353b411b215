// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// CiliumBGPNodeConfig says how the node of the same name speaks BGP; the operator writes it, and the node's agent its status. Version v2 has taken its place.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ciliumbgpnodeconfigs,singular=ciliumbgpnodeconfig,scope=Cluster,shortName={cbgpnode},categories={cilium,ciliumbgp}
// +kubebuilder:deprecatedversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the configuration was made"
type CiliumBGPNodeConfig struct {
	metav1.TypeMeta `json:",inline"`
	// +required
	metav1.ObjectMeta `json:"metadata"`

	// How the node speaks.
	//
	// +required
	Spec v2.CiliumBGPNodeConfigSpec `json:"spec"`
	// What the agent reports about its routers.
	Status v2.CiliumBGPNodeConfigStatus `json:"status,omitzero"`
}

// CiliumBGPNodeConfigList is a list of CiliumBGPNodeConfigs.
//
// +kubebuilder:object:root=true
type CiliumBGPNodeConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []CiliumBGPNodeConfig `json:"items"`
}
