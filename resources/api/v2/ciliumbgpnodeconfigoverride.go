// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CiliumBGPNodeConfigOverride adds what is particular to the node of the same name to its CiliumBGPNodeConfig.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ciliumbgpnodeconfigoverrides,singular=ciliumbgpnodeconfigoverride,scope=Cluster,shortName={cbgpnodeoverride},categories={cilium,ciliumbgp}
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the override was made"
type CiliumBGPNodeConfigOverride struct {
	metav1.TypeMeta `json:",inline"`
	// +required
	metav1.ObjectMeta `json:"metadata"`

	// What is particular to the node.
	//
	// +required
	Spec CiliumBGPNodeConfigOverrideSpec `json:"spec"`
}

// CiliumBGPNodeConfigOverrideList is a list of CiliumBGPNodeConfigOverrides.
//
// +kubebuilder:object:root=true
type CiliumBGPNodeConfigOverrideList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []CiliumBGPNodeConfigOverride `json:"items"`
}

// CiliumBGPNodeConfigOverrideSpec is what is particular to a node.
type CiliumBGPNodeConfigOverrideSpec struct {
	// Routers of the node that have particulars.
	//
	// +required
	// +kubebuilder:validation:MinItems=1
	// +listType=map
	// +listMapKey=name
	BGPInstances []CiliumBGPInstanceOverride `json:"bgpInstances"`
}

// CiliumBGPInstanceOverride is what is particular to a router of a node.
type CiliumBGPInstanceOverride struct {
	// Name of the router in the CiliumBGPClusterConfig.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	Name string `json:"name"`
	// Identifier of the router, in the form of an IPv4 address.
	//
	// +kubebuilder:validation:Format=ipv4
	RouterID string `json:"routerID,omitempty"`
	// Port that the router listens on; it does not listen when it is 0.
	LocalPort int32 `json:"localPort,omitempty"`
	// Number of the router's autonomous system on this node.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967295
	LocalASN int64 `json:"localASN,omitempty"`
	// Peers that have particulars.
	//
	// +listType=map
	// +listMapKey=name
	Peers []CiliumBGPPeerOverride `json:"peers,omitempty"`
}

// CiliumBGPPeerOverride is what is particular to a peer of a node's router.
type CiliumBGPPeerOverride struct {
	// Name of the peer in the CiliumBGPClusterConfig.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	Name string `json:"name"`
	// Address of the node from which it speaks to the peer.
	LocalAddress IPAddress `json:"localAddress,omitempty"`
	// Port from which it speaks to the peer; no duty reads it.
	LocalPort int32 `json:"localPort,omitempty"`
}
