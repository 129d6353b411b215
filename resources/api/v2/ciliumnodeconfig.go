// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CiliumNodeConfig sets options of the agents on chosen nodes.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ciliumnodeconfigs,singular=ciliumnodeconfig,scope=Namespaced,categories={cilium}
// +kubebuilder:storageversion
type CiliumNodeConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// The options and the nodes.
	//
	// +required
	Spec CiliumNodeConfigSpec `json:"spec"`
}

// CiliumNodeConfigList is a list of CiliumNodeConfigs.
//
// +kubebuilder:object:root=true
type CiliumNodeConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []CiliumNodeConfig `json:"items"`
}

// CiliumNodeConfigSpec says which options the agents of which nodes take.
type CiliumNodeConfigSpec struct {
	// The options, by name; they override those of the whole cluster.
	//
	// +required
	Defaults map[string]string `json:"defaults"`
	// The nodes.
	//
	// +required
	NodeSelector CiliumNodeConfigSelector `json:"nodeSelector"`
}

// CiliumNodeConfigSelector selects nodes by their labels; all its terms have to hold.
// The API server checks less of it than of a LabelSelector.
//
// +structType=atomic
type CiliumNodeConfigSelector struct {
	// Labels that have to be present with these values.
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
	// Conditions on labels that all have to hold.
	//
	// +listType=atomic
	MatchExpressions []metav1.LabelSelectorRequirement `json:"matchExpressions,omitempty"`
}
