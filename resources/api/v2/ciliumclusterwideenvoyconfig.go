// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CiliumClusterwideEnvoyConfig configures the proxies of the nodes for Services of any namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ciliumclusterwideenvoyconfigs,singular=ciliumclusterwideenvoyconfig,scope=Cluster,shortName={ccec},categories={cilium}
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the configuration was made"
type CiliumClusterwideEnvoyConfig struct {
	metav1.TypeMeta `json:",inline"`
	// +required
	metav1.ObjectMeta `json:"metadata"`

	// What the proxies are to do.
	Spec CiliumEnvoyConfigSpec `json:"spec,omitzero"`
}

// CiliumClusterwideEnvoyConfigList is a list of CiliumClusterwideEnvoyConfigs.
//
// +kubebuilder:object:root=true
type CiliumClusterwideEnvoyConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []CiliumClusterwideEnvoyConfig `json:"items"`
}
