// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CiliumDatapathPlugin tells agents of a program that adds to their datapath; it exists from 1.20 on.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ciliumdatapathplugins,singular=ciliumdatapathplugin,scope=Cluster,shortName={cddp},categories={cilium}
// +kubebuilder:deprecatedversion
type CiliumDatapathPlugin struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// The program, and what agents do without it.
	//
	// +required
	Spec CiliumDatapathPluginSpec `json:"spec"`
}

// CiliumDatapathPluginList is a list of CiliumDatapathPlugins.
//
// +kubebuilder:object:root=true
type CiliumDatapathPluginList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []CiliumDatapathPlugin `json:"items"`
}

// CiliumDatapathPluginSpec is a program that adds to the datapath of agents.
type CiliumDatapathPluginSpec struct {
	// Whether agents go on without the program.
	//
	// +required
	AttachmentPolicy DatapathAttachmentPolicy `json:"attachmentPolicy"`
	// Version of the program.
	//
	// +required
	Version string `json:"version"`
}

// DatapathAttachmentPolicy says whether agents go on without a program of their datapath.
//
// +kubebuilder:validation:Enum=Always;BestEffort
type DatapathAttachmentPolicy string

// What agents do without the program: wait, or go on.
const (
	DatapathAttachAlways     DatapathAttachmentPolicy = "Always"
	DatapathAttachBestEffort DatapathAttachmentPolicy = "BestEffort"
)
