// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CiliumEgressGatewayPolicy sends chosen traffic out of the cluster through a chosen node.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ciliumegressgatewaypolicies,singular=ciliumegressgatewaypolicy,scope=Cluster,shortName={cegp},categories={cilium,ciliumpolicy}
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the policy was made"
type CiliumEgressGatewayPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +required
	metav1.ObjectMeta `json:"metadata"`

	// What the policy says.
	Spec CiliumEgressGatewayPolicySpec `json:"spec,omitzero"`
}

// CiliumEgressGatewayPolicyList is a list of CiliumEgressGatewayPolicies.
//
// +kubebuilder:object:root=true
type CiliumEgressGatewayPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []CiliumEgressGatewayPolicy `json:"items"`
}

// CiliumEgressGatewayPolicySpec says which traffic leaves the cluster through which node.
type CiliumEgressGatewayPolicySpec struct {
	// Pods whose traffic it is; any selector is enough.
	//
	// +required
	Selectors []EgressSelector `json:"selectors"`
	// Destinations of the traffic.
	//
	// +required
	// +kubebuilder:validation:items:Format=cidr
	DestinationCIDRs []string `json:"destinationCIDRs"`
	// Destinations among them that do not count.
	//
	// +kubebuilder:validation:items:Format=cidr
	ExcludedCIDRs []string `json:"excludedCIDRs,omitempty"`
	// Where the traffic leaves.
	//
	// +required
	EgressGateway EgressGateway `json:"egressGateway"`
	// Further places where the traffic leaves, over which it is spread.
	//
	// +kubebuilder:default={}
	// +kubebuilder:validation:MaxItems=64
	EgressGateways []EgressGateway `json:"egressGateways,omitzero"`
}

// EgressSelector chooses pods; all its selectors have to hold.
type EgressSelector struct {
	// Namespaces of the pods.
	NamespaceSelector *LabelSelector `json:"namespaceSelector,omitempty"`
	// The pods themselves.
	PodSelector *LabelSelector `json:"podSelector,omitempty"`
	// Nodes that the pods run on.
	NodeSelector *LabelSelector `json:"nodeSelector,omitempty"`
}

// EgressGateway is where traffic leaves the cluster.
type EgressGateway struct {
	// Nodes that may be the gateway; the first by name is.
	//
	// +required
	NodeSelector LabelSelector `json:"nodeSelector"`
	// Network interface whose address becomes the source; excludes egressIP.
	Interface string `json:"interface,omitempty"`
	// Address that becomes the source; excludes interface.
	EgressIP OptionalIP `json:"egressIP,omitempty"`
}
