// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// CiliumBGPAdvertisement says which addresses are advertised to peers; v2 has taken its place.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ciliumbgpadvertisements,singular=ciliumbgpadvertisement,scope=Cluster,shortName={cbgpadvert},categories={cilium,ciliumbgp}
// +kubebuilder:deprecatedversion
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the advertisement was made"
type CiliumBGPAdvertisement struct {
	metav1.TypeMeta `json:",inline"`
	// +required
	metav1.ObjectMeta `json:"metadata"`

	// What is advertised.
	//
	// +required
	Spec v2.CiliumBGPAdvertisementSpec `json:"spec"`
}

// CiliumBGPAdvertisementList is a list of CiliumBGPAdvertisements.
//
// +kubebuilder:object:root=true
type CiliumBGPAdvertisementList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []CiliumBGPAdvertisement `json:"items"`
}
