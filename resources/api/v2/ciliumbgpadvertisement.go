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
// +kubebuilder:validation:Enum=PodCIDR;CiliumPodIPPool;Service;Interface
type BGPAdvertisementType string

// Where advertised addresses are from.
const (
	BGPPodCIDRAdvertisement         BGPAdvertisementType = "PodCIDR"
	BGPCiliumPodIPPoolAdvertisement BGPAdvertisementType = "CiliumPodIPPool"
	BGPServiceAdvertisement         BGPAdvertisementType = "Service"
	BGPInterfaceAdvertisement       BGPAdvertisementType = "Interface"
)

// BGPAdvertisement says that some addresses are advertised.
//
// +kubebuilder:validation:XValidation:rule="self.advertisementType != 'Service' || has(self.service)",message="service field is required for the 'Service' advertisementType"
// +kubebuilder:validation:XValidation:rule="self.advertisementType != 'Interface' || has(self.interface)",message="interface field is required for the 'Interface' advertisementType"
// +kubebuilder:validation:XValidation:rule="self.advertisementType == 'Interface' || !has(self.interface)",message="interface field is not allowed for non-'Interface' advertisementType"
// +kubebuilder:validation:XValidation:rule="self.advertisementType != 'PodCIDR' || !has(self.selector)",message="selector field is not allowed for the 'PodCIDR' advertisementType"
type BGPAdvertisement struct {
	// Where the addresses are from.
	//
	// +required
	AdvertisementType BGPAdvertisementType `json:"advertisementType"`
	// Which addresses of Services, when they are from Services.
	Service *BGPServiceOptions `json:"service,omitempty"`
	// Which network interface, when they are from one.
	Interface *BGPInterfaceOptions `json:"interface,omitempty"`
	// Pools or Services that are meant; none when it is absent.
	Selector *LabelSelector `json:"selector,omitempty"`
	// What is said about the routes.
	Attributes *BGPAttributes `json:"attributes,omitempty"`
}

// BGPServiceOptions says which addresses of Services are advertised.
type BGPServiceOptions struct {
	// The addresses.
	//
	// +required
	// +kubebuilder:validation:MinItems=1
	Addresses []BGPServiceAddressType `json:"addresses"`
	// Length of the IPv4 prefix that is advertised in place of single addresses.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31
	AggregationLengthIPv4 *int16 `json:"aggregationLengthIPv4,omitempty"`
	// Length of the IPv6 prefix that is advertised in place of single addresses.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=127
	AggregationLengthIPv6 *int16 `json:"aggregationLengthIPv6,omitempty"`
}

// BGPInterfaceOptions says which network interface has the addresses that are advertised.
type BGPInterfaceOptions struct {
	// Name of the interface.
	//
	// +required
	Name string `json:"name"`
}

// BGPAttributes are what is said about routes.
type BGPAttributes struct {
	// Communities that the routes are marked with.
	Communities *BGPCommunities `json:"communities,omitempty"`
	// Preference among routes within the autonomous system.
	LocalPreference *int64 `json:"localPreference,omitempty"`
}
