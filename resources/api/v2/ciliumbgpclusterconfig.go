// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CiliumBGPClusterConfig says how chosen nodes speak BGP; the operator makes a CiliumBGPNodeConfig for each.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ciliumbgpclusterconfigs,singular=ciliumbgpclusterconfig,scope=Cluster,shortName={cbgpcluster},categories={cilium,ciliumbgp}
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the configuration was made"
type CiliumBGPClusterConfig struct {
	metav1.TypeMeta `json:",inline"`
	// +required
	metav1.ObjectMeta `json:"metadata"`

	// The nodes, and how they speak.
	//
	// +required
	Spec CiliumBGPClusterConfigSpec `json:"spec"`
	// What the operator reports about the configuration.
	Status CiliumBGPClusterConfigStatus `json:"status,omitzero"`
}

// CiliumBGPClusterConfigList is a list of CiliumBGPClusterConfigs.
//
// +kubebuilder:object:root=true
type CiliumBGPClusterConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []CiliumBGPClusterConfig `json:"items"`
}

// CiliumBGPClusterConfigSpec says how chosen nodes speak BGP.
type CiliumBGPClusterConfigSpec struct {
	// The nodes; all when it is absent.
	NodeSelector *LabelSelector `json:"nodeSelector,omitempty"`
	// Routers that each of the nodes runs.
	//
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	BGPInstances []CiliumBGPInstance `json:"bgpInstances"`
}

// CiliumBGPInstance is a router that each of several nodes runs.
type CiliumBGPInstance struct {
	// Name of the router.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	Name string `json:"name"`
	// Number of the router's autonomous system.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967295
	LocalASN int64 `json:"localASN,omitempty"`
	// Port that the router listens on; it does not listen when it is 0.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	LocalPort int32 `json:"localPort,omitempty"`
	// Routers that it speaks to.
	//
	// +listType=map
	// +listMapKey=name
	Peers []CiliumBGPPeer `json:"peers,omitempty"`
}

// CiliumBGPPeer is a router that the routers of several nodes speak to.
type CiliumBGPPeer struct {
	// Name of the peer.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	Name string `json:"name"`
	// Address of the peer.
	PeerAddress IPAddress `json:"peerAddress,omitempty"`
	// Number of the peer's autonomous system; 0 means any.
	//
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	PeerASN int64 `json:"peerASN,omitempty"`
	// How the peer's address is found when it is not given.
	AutoDiscovery *BGPAutoDiscovery `json:"autoDiscovery,omitempty"`
	// Settings for speaking to the peer.
	PeerConfigRef *BGPPeerConfigReference `json:"peerConfigRef,omitempty"`
}

// CiliumBGPClusterConfigStatus is what the operator reports about a CiliumBGPClusterConfig.
type CiliumBGPClusterConfigStatus struct {
	// Findings, by type.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
