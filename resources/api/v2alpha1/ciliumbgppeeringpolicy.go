// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// CiliumBGPPeeringPolicy says how chosen nodes speak BGP, in the form that CiliumBGPClusterConfig has replaced.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ciliumbgppeeringpolicies,singular=ciliumbgppeeringpolicy,scope=Cluster,shortName={bgpp},categories={cilium,ciliumbgp}
// +kubebuilder:deprecatedversion:warning="cilium.io/v2alpha1 CiliumBGPPeeringPolicy is deprecated, and agents from 1.19 on do not read it; use CiliumBGPClusterConfig, CiliumBGPPeerConfig and CiliumBGPAdvertisement of cilium.io/v2"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the policy was made"
type CiliumBGPPeeringPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +required
	metav1.ObjectMeta `json:"metadata"`

	// The nodes, and how they speak.
	Spec CiliumBGPPeeringPolicySpec `json:"spec,omitzero"`
}

// CiliumBGPPeeringPolicyList is a list of CiliumBGPPeeringPolicies.
//
// +kubebuilder:object:root=true
type CiliumBGPPeeringPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []CiliumBGPPeeringPolicy `json:"items"`
}

// CiliumBGPPeeringPolicySpec says how chosen nodes speak BGP.
type CiliumBGPPeeringPolicySpec struct {
	// The nodes; all when it is absent.
	NodeSelector *v2.LabelSelector `json:"nodeSelector,omitempty"`
	// Routers that each of the nodes runs.
	//
	// +required
	// +kubebuilder:validation:MinItems=1
	VirtualRouters []BGPVirtualRouter `json:"virtualRouters"`
}

// BGPVirtualRouter is a router that each of several nodes runs.
type BGPVirtualRouter struct {
	// Number of the router's autonomous system.
	//
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	LocalASN int64 `json:"localASN"`
	// Whether the node's own ranges for pods are advertised.
	//
	// +kubebuilder:default=false
	ExportPodCIDR bool `json:"exportPodCIDR,omitempty"`
	// Pools whose ranges are advertised; none when it is absent.
	PodIPPoolSelector *v2.LabelSelector `json:"podIPPoolSelector,omitempty"`
	// Services whose addresses are advertised; none when it is absent.
	ServiceSelector *v2.LabelSelector `json:"serviceSelector,omitempty"`
	// Which of their addresses.
	//
	// +kubebuilder:default={LoadBalancerIP}
	ServiceAdvertisements []v2.BGPServiceAddressType `json:"serviceAdvertisements,omitzero"`
	// Routers that it speaks to.
	//
	// +required
	// +kubebuilder:validation:MinItems=1
	Neighbors []BGPNeighbor `json:"neighbors"`
}

// BGPNeighbor is a router that the routers of several nodes speak to.
type BGPNeighbor struct {
	v2.BGPTimers `json:",inline"`
	// Address of the neighbor, as a range of one address.
	//
	// +required
	// +kubebuilder:validation:Format=cidr
	PeerAddress string `json:"peerAddress"`
	// Port that the neighbor listens on.
	//
	// +kubebuilder:default=179
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	PeerPort int32 `json:"peerPort,omitempty"`
	// Number of the neighbor's autonomous system.
	//
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	PeerASN int64 `json:"peerASN"`
	// Name of the Secret that holds the password of the session.
	AuthSecretRef string `json:"authSecretRef,omitempty"`
	// Number of hops to a neighbor of another autonomous system, at most.
	//
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=255
	EBGPMultihopTTL int32 `json:"eBGPMultihopTTL,omitempty"`
	// Whether the neighbor keeps its routes while the agent restarts.
	GracefulRestart *v2.BGPGracefulRestart `json:"gracefulRestart,omitempty"`
	// Address families to exchange.
	Families []v2.BGPFamily `json:"families,omitempty"`
	// What is said about routes.
	AdvertisedPathAttributes []BGPPathAttributes `json:"advertisedPathAttributes,omitempty"`
}

// BGPPathAttributes are what is said about chosen routes.
type BGPPathAttributes struct {
	// Where the addresses of the routes are from.
	//
	// +required
	// +kubebuilder:validation:Enum=PodCIDR;CiliumLoadBalancerIPPool;CiliumPodIPPool
	SelectorType string `json:"selectorType"`
	// Pools that the addresses are from; all when it is absent.
	Selector *v2.LabelSelector `json:"selector,omitempty"`
	// Communities that the routes are marked with.
	Communities *v2.BGPCommunities `json:"communities,omitempty"`
	// Preference among routes within the autonomous system.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	LocalPreference *int64 `json:"localPreference,omitempty"`
}
