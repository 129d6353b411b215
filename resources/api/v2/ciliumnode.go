// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CiliumNode is a node of the cluster as Cilium sees it: its addresses, and the addresses it hands to pods.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ciliumnodes,singular=ciliumnode,scope=Cluster,shortName={cn,ciliumn},categories={cilium}
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="CiliumInternalIP",type=string,JSONPath=`.spec.addresses[?(@.type=="CiliumInternalIP")].ip`,description="Address of the node inside the pod network"
// +kubebuilder:printcolumn:name="InternalIP",type=string,JSONPath=`.spec.addresses[?(@.type=="InternalIP")].ip`,description="Address of the node in the cluster's network"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the node was registered"
type CiliumNode struct {
	metav1.TypeMeta `json:",inline"`
	// +required
	metav1.ObjectMeta `json:"metadata"`

	// What the agent and the operator have settled for the node.
	//
	// +required
	Spec CiliumNodeSpec `json:"spec"`
	// What the agent and the operator report about the node.
	Status CiliumNodeStatus `json:"status,omitzero"`
}

// CiliumNodeList is a list of CiliumNodes.
//
// +kubebuilder:object:root=true
type CiliumNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []CiliumNode `json:"items"`
}

// CiliumNodeSpec is what the agent and the operator have settled for a node.
type CiliumNodeSpec struct {
	// Identifier of the machine at its cloud provider.
	InstanceID string `json:"instance-id,omitempty"`
	// Identifier that the kernel draws anew at each boot.
	BootID string `json:"bootid,omitempty"`
	// Addresses under which the node is reached.
	Addresses []NodeAddress `json:"addresses,omitempty"`
	// Addresses of the endpoint that answers health probes.
	HealthAddressing AddressPair `json:"health,omitzero"`
	// Addresses that the node's ingress proxy uses as its own.
	IngressAddressing AddressPair `json:"ingress,omitzero"`
	// How traffic to the node is encrypted.
	Encryption EncryptionSpec `json:"encryption,omitzero"`
	// Wishes about network interfaces on AWS.
	ENI ENISpec `json:"eni,omitzero"`
	// Wishes about network interfaces on Azure.
	Azure AzureSpec `json:"azure,omitzero"`
	// Wishes about network interfaces on Alibaba Cloud.
	AlibabaCloud AlibabaCloudSpec `json:"alibaba-cloud,omitzero"`
	// Addresses and ranges that the node hands to its pods.
	IPAM IPAMSpec `json:"ipam,omitzero"`
	// Security identity of the node.
	NodeIdentity int64 `json:"nodeidentity,omitempty"`
}

// NodeAddressType says what an address of a node is for.
type NodeAddressType string

// The types of node addresses.
const (
	NodeAddressHostName         NodeAddressType = "Hostname"
	NodeAddressInternalIP       NodeAddressType = "InternalIP"
	NodeAddressExternalIP       NodeAddressType = "ExternalIP"
	NodeAddressInternalDNS      NodeAddressType = "InternalDNS"
	NodeAddressExternalDNS      NodeAddressType = "ExternalDNS"
	NodeAddressCiliumInternalIP NodeAddressType = "CiliumInternalIP"
)

// NodeAddress is one address of a node.
type NodeAddress struct {
	// What the address is for.
	Type NodeAddressType `json:"type,omitempty"`
	// The address.
	IP string `json:"ip,omitempty"`
}

// AddressPair is an address of each family.
type AddressPair struct {
	// IPv4 address.
	IPv4 string `json:"ipv4,omitempty"`
	// IPv6 address.
	IPv6 string `json:"ipv6,omitempty"`
}

// EncryptionSpec says how traffic to a node or an endpoint is encrypted.
type EncryptionSpec struct {
	// Index of the key in use; 0 means no encryption.
	Key int `json:"key,omitempty"`
}

// CiliumNodeStatus is what the agent and the operator report about a node.
type CiliumNodeStatus struct {
	// Network interfaces on AWS.
	ENI ENIStatus `json:"eni,omitzero"`
	// Network interfaces on Azure.
	Azure AzureStatus `json:"azure,omitzero"`
	// Network interfaces on Alibaba Cloud.
	AlibabaCloud AlibabaCloudStatus `json:"alibaba-cloud,omitzero"`
	// Addresses in use and on their way back.
	IPAM IPAMStatus `json:"ipam,omitzero"`
}
