// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// CiliumBGPNodeConfigOverride adds what is particular to the node of the same name to its CiliumBGPNodeConfig; v2 has taken its place.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ciliumbgpnodeconfigoverrides,singular=ciliumbgpnodeconfigoverride,scope=Cluster,shortName={cbgpnodeoverride},categories={cilium,ciliumbgp}
// +kubebuilder:deprecatedversion
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the override was made"
type CiliumBGPNodeConfigOverride struct {
	metav1.TypeMeta `json:",inline"`
	// +required
	metav1.ObjectMeta `json:"metadata"`

	// What is particular to the node.
	//
	// +required
	Spec v2.CiliumBGPNodeConfigOverrideSpec `json:"spec"`
}

// CiliumBGPNodeConfigOverrideList is a list of CiliumBGPNodeConfigOverrides.
//
// +kubebuilder:object:root=true
type CiliumBGPNodeConfigOverrideList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []CiliumBGPNodeConfigOverride `json:"items"`
}
