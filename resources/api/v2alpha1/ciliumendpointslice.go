// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// CiliumEndpointSlice is a batch of endpoints of one namespace, for agents of other nodes.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ciliumendpointslices,singular=ciliumendpointslice,scope=Cluster,shortName={ces},categories={cilium}
type CiliumEndpointSlice struct {
	metav1.TypeMeta `json:",inline"`
	// +required
	metav1.ObjectMeta `json:"metadata"`

	// Namespace of the endpoints; the slice itself has none.
	Namespace string `json:"namespace,omitempty"`
	// The endpoints, in no order. A writer sets it, if only to an empty list.
	//
	// +required
	Endpoints []CoreCiliumEndpoint `json:"endpoints"`
}

// CiliumEndpointSliceList is a list of CiliumEndpointSlices.
//
// +kubebuilder:object:root=true
type CiliumEndpointSliceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []CiliumEndpointSlice `json:"items"`
}

// CoreCiliumEndpoint is what agents of other nodes have to know about an endpoint.
type CoreCiliumEndpoint struct {
	// Name of the CiliumEndpoint.
	Name string `json:"name,omitempty"`
	// Number of the security identity.
	IdentityID int64 `json:"id,omitempty"`
	// Addresses of the endpoint.
	Networking *v2.EndpointNetworking `json:"networking,omitempty"`
	// How traffic to the endpoint is encrypted; written even when it is not.
	Encryption v2.EncryptionSpec `json:"encryption"`
	// Ports that the pod has named.
	NamedPorts []v2.NamedPort `json:"named-ports,omitempty"`
	// Name of the pod's service account.
	ServiceAccount string `json:"service-account,omitempty"`
	// UID of the pod.
	PodUID string `json:"pod-uid,omitempty"`
}
