// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// CiliumBGPClusterConfig says how chosen nodes speak BGP; the operator makes a CiliumBGPNodeConfig for each. Version v2 has taken its place.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ciliumbgpclusterconfigs,singular=ciliumbgpclusterconfig,scope=Cluster,shortName={cbgpcluster},categories={cilium,ciliumbgp}
// +kubebuilder:deprecatedversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the configuration was made"
type CiliumBGPClusterConfig struct {
	metav1.TypeMeta `json:",inline"`
	// +required
	metav1.ObjectMeta `json:"metadata"`

	// The nodes, and how they speak.
	//
	// +required
	Spec v2.CiliumBGPClusterConfigSpec `json:"spec"`
	// What the operator reports about the configuration.
	Status v2.CiliumBGPClusterConfigStatus `json:"status,omitzero"`
}

// CiliumBGPClusterConfigList is a list of CiliumBGPClusterConfigs.
//
// +kubebuilder:object:root=true
type CiliumBGPClusterConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []CiliumBGPClusterConfig `json:"items"`
}
