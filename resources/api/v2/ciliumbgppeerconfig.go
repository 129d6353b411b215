// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CiliumBGPPeerConfig is a set of settings for speaking to peers.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ciliumbgppeerconfigs,singular=ciliumbgppeerconfig,scope=Cluster,shortName={cbgppeer},categories={cilium,ciliumbgp}
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the settings were made"
type CiliumBGPPeerConfig struct {
	metav1.TypeMeta `json:",inline"`
	// +required
	metav1.ObjectMeta `json:"metadata"`

	// The settings.
	//
	// +required
	Spec CiliumBGPPeerConfigSpec `json:"spec"`
	// What the operator reports about the settings.
	Status CiliumBGPPeerConfigStatus `json:"status,omitzero"`
}

// CiliumBGPPeerConfigList is a list of CiliumBGPPeerConfigs.
//
// +kubebuilder:object:root=true
type CiliumBGPPeerConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []CiliumBGPPeerConfig `json:"items"`
}

// CiliumBGPPeerConfigSpec is a set of settings for speaking to peers.
type CiliumBGPPeerConfigSpec struct {
	// Ends of the connection.
	Transport *BGPTransport `json:"transport,omitempty"`
	// Timers of the session.
	//
	// +kubebuilder:validation:XValidation:rule="self.keepAliveTimeSeconds <= self.holdTimeSeconds",message="keepAliveTimeSeconds can not be larger than holdTimeSeconds"
	Timers *BGPTimers `json:"timers,omitempty"`
	// Name of the Secret that holds the password of the session.
	AuthSecretRef string `json:"authSecretRef,omitempty"`
	// Whether the peer keeps its routes while the agent restarts.
	GracefulRestart *BGPGracefulRestart `json:"gracefulRestart,omitempty"`
	// Number of hops to a peer of another autonomous system, at most.
	//
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=255
	EBGPMultihop int32 `json:"ebgpMultihop,omitempty"`
	// Address families to exchange, with what is advertised of each.
	Families []BGPFamilyAdvertisements `json:"families,omitempty"`
}

// BGPTransport is the ends of a connection.
type BGPTransport struct {
	// Port from which the connection is made; the system chooses when it is 0.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	LocalPort int32 `json:"localPort,omitempty"`
	// Port that the peer listens on.
	//
	// +kubebuilder:default=179
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	PeerPort int32 `json:"peerPort,omitempty"`
	// Network interface whose address the connection is made from; the system chooses when it is empty.
	SourceInterface string `json:"sourceInterface,omitempty"`
}

// BGPFamilyAdvertisements is an address family, with what is advertised of it.
type BGPFamilyAdvertisements struct {
	BGPFamily `json:",inline"`
	// CiliumBGPAdvertisements that apply; none when it is absent.
	Advertisements *LabelSelector `json:"advertisements,omitempty"`
}

// CiliumBGPPeerConfigStatus is what the operator reports about a CiliumBGPPeerConfig.
type CiliumBGPPeerConfigStatus struct {
	// Findings, by type.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
