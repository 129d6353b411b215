// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CiliumBGPAdvertisement says which addresses are advertised to peers.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ciliumbgpadvertisements,singular=ciliumbgpadvertisement,scope=Cluster,shortName={cbgpadvert},categories={cilium,ciliumbgp}
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the advertisement was made"
type CiliumBGPAdvertisement struct {
	metav1.TypeMeta `json:",inline"`
	// +required
	metav1.ObjectMeta `json:"metadata"`

	// What is advertised.
	//
	// +required
	Spec CiliumBGPAdvertisementSpec `json:"spec"`
}

// CiliumBGPAdvertisementList is a list of CiliumBGPAdvertisements.
//
// +kubebuilder:object:root=true
type CiliumBGPAdvertisementList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []CiliumBGPAdvertisement `json:"items"`
}

// CiliumBGPAdvertisementSpec says which addresses are advertised to peers.
type CiliumBGPAdvertisementSpec struct {
	// The addresses, with what is said about them.
	//
	// +required
	Advertisements []BGPAdvertisement `json:"advertisements"`
}

// BGPAdvertisementType says where advertised addresses are from.
//
// +kubebuilder:validation:Enum=PodCIDR;CiliumPodIPPool;Service
type BGPAdvertisementType string

// Where advertised addresses are from.
const (
	BGPPodCIDRAdvertisement         BGPAdvertisementType = "PodCIDR"
	BGPCiliumPodIPPoolAdvertisement BGPAdvertisementType = "CiliumPodIPPool"
	BGPServiceAdvertisement         BGPAdvertisementType = "Service"
)

// BGPAdvertisement says that some addresses are advertised.
type BGPAdvertisement struct {
	// Where the addresses are from.
	//
	// +required
	AdvertisementType BGPAdvertisementType `json:"advertisementType"`
	// Which addresses of Services, when they are from Services.
	Service *BGPServiceOptions `json:"service,omitempty"`
	// Pools or Services that are meant; none when it is absent.
	Selector *LabelSelector `json:"selector,omitempty"`
	// What is said about the routes.
	Attributes *BGPAttributes `json:"attributes,omitempty"`
}

// BGPServiceOptions says which addresses of Services are advertised.
type BGPServiceOptions struct {
	// The addresses.
	//
	// +kubebuilder:validation:MinItems=1
	Addresses []BGPServiceAddressType `json:"addresses,omitempty"`
}

// BGPAttributes are what is said about routes.
type BGPAttributes struct {
	// Communities that the routes are marked with.
	Communities *BGPCommunities `json:"communities,omitempty"`
	// Preference among routes within the autonomous system.
	LocalPreference *int64 `json:"localPreference,omitempty"`
}
