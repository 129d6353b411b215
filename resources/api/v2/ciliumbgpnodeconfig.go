// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CiliumBGPNodeConfig says how the node of the same name speaks BGP; the operator writes it, and the node's agent its status.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ciliumbgpnodeconfigs,singular=ciliumbgpnodeconfig,scope=Cluster,shortName={cbgpnode},categories={cilium,ciliumbgp}
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the configuration was made"
type CiliumBGPNodeConfig struct {
	metav1.TypeMeta `json:",inline"`
	// +required
	metav1.ObjectMeta `json:"metadata"`

	// How the node speaks.
	//
	// +required
	Spec CiliumBGPNodeConfigSpec `json:"spec"`
	// What the agent reports about its routers.
	Status CiliumBGPNodeConfigStatus `json:"status,omitzero"`
}

// CiliumBGPNodeConfigList is a list of CiliumBGPNodeConfigs.
//
// +kubebuilder:object:root=true
type CiliumBGPNodeConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []CiliumBGPNodeConfig `json:"items"`
}

// CiliumBGPNodeConfigSpec says how a node speaks BGP.
type CiliumBGPNodeConfigSpec struct {
	// Routers that the node runs.
	//
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	BGPInstances []CiliumBGPNodeInstance `json:"bgpInstances"`
}

// CiliumBGPNodeInstance is a router of a node.
type CiliumBGPNodeInstance struct {
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
	// Identifier of the router, in the form of an IPv4 address; the agent finds one when it is empty.
	//
	// +kubebuilder:validation:Format=ipv4
	RouterID string `json:"routerID,omitempty"`
	// Port that the router listens on; it does not listen when it is 0.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	LocalPort int32 `json:"localPort,omitempty"`
	// Routers that it speaks to.
	//
	// +listType=map
	// +listMapKey=name
	Peers []CiliumBGPNodePeer `json:"peers,omitempty"`
}

// CiliumBGPNodePeer is a router that the router of a node speaks to.
type CiliumBGPNodePeer struct {
	// Name of the peer.
	//
	// +required
	Name string `json:"name"`
	// Address of the peer.
	PeerAddress IPAddress `json:"peerAddress,omitempty"`
	// Number of the peer's autonomous system; 0 means any.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	PeerASN int64 `json:"peerASN,omitempty"`
	// Address of the node from which it speaks to the peer; the system chooses when it is empty.
	LocalAddress IPAddress `json:"localAddress,omitempty"`
	// How the peer's address is found when it is not given.
	AutoDiscovery *BGPAutoDiscovery `json:"autoDiscovery,omitempty"`
	// Settings for speaking to the peer.
	PeerConfigRef *BGPPeerConfigReference `json:"peerConfigRef,omitempty"`
}

// CiliumBGPNodeConfigStatus is what the agent reports about the routers of its node.
type CiliumBGPNodeConfigStatus struct {
	// The routers.
	//
	// +listType=map
	// +listMapKey=name
	BGPInstances []CiliumBGPNodeInstanceStatus `json:"bgpInstances,omitempty"`
	// Findings, by type.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// CiliumBGPNodeInstanceStatus is the state of a router of a node.
type CiliumBGPNodeInstanceStatus struct {
	// Name of the router.
	//
	// +required
	Name string `json:"name"`
	// Number of the router's autonomous system.
	LocalASN int64 `json:"localASN,omitempty"`
	// State of its peers.
	//
	// +listType=map
	// +listMapKey=name
	Peers []CiliumBGPNodePeerStatus `json:"peers,omitempty"`
}

// CiliumBGPNodePeerStatus is the state of a peer of a router.
type CiliumBGPNodePeerStatus struct {
	// Name of the peer.
	//
	// +required
	Name string `json:"name"`
	// Address of the peer.
	//
	// +required
	PeerAddress string `json:"peerAddress"`
	// Number of the peer's autonomous system.
	PeerASN int64 `json:"peerASN,omitempty"`
	// State of the session with the peer.
	PeeringState string `json:"peeringState,omitempty"`
	// Timers that both sides have agreed on.
	Timers *BGPAppliedTimers `json:"timers,omitempty"`
	// Time at which the session was established.
	EstablishedTime string `json:"establishedTime,omitempty"`
	// Numbers of routes, by address family.
	RouteCount []BGPFamilyRouteCount `json:"routeCount,omitempty"`
}

// BGPAppliedTimers are the timers of a session.
type BGPAppliedTimers struct {
	// Time without a message after which the session is given up, in seconds.
	AppliedHoldTimeSeconds *int32 `json:"appliedHoldTimeSeconds,omitempty"`
	// Time between two signs of life, in seconds.
	AppliedKeepaliveSeconds *int32 `json:"appliedKeepaliveSeconds,omitempty"`
}

// BGPFamilyRouteCount is the number of routes of one address family.
type BGPFamilyRouteCount struct {
	BGPFamily `json:",inline"`
	// Number of routes received from the peer.
	Received *int32 `json:"received,omitempty"`
	// Number of routes advertised to the peer.
	Advertised *int32 `json:"advertised,omitempty"`
}
