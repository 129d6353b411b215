// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// CiliumGatewayClassConfig is the parameters that a GatewayClass names; it exists from 1.18 on.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ciliumgatewayclassconfigs,singular=ciliumgatewayclassconfig,scope=Namespaced,shortName={cgcc},categories={cilium}
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`,description="Whether the operator uses the parameters"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the parameters were made"
// +kubebuilder:printcolumn:name="Description",type=string,priority=1,JSONPath=`.spec.description`,description="What the parameters are for"
type CiliumGatewayClassConfig struct {
	metav1.TypeMeta `json:",inline"`
	// +required
	metav1.ObjectMeta `json:"metadata"`

	// The parameters.
	Spec CiliumGatewayClassConfigSpec `json:"spec,omitzero"`
	// What the operator reports about the parameters.
	Status CiliumGatewayClassConfigStatus `json:"status,omitzero"`
}

// CiliumGatewayClassConfigList is a list of CiliumGatewayClassConfigs.
//
// +kubebuilder:object:root=true
type CiliumGatewayClassConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []CiliumGatewayClassConfig `json:"items"`
}

// CiliumGatewayClassConfigSpec is the parameters of the Gateways of a class.
type CiliumGatewayClassConfigSpec struct {
	// What the parameters are for, for people.
	//
	// +kubebuilder:validation:MaxLength=64
	Description string `json:"description,omitempty"`
	// The Service that each Gateway is given.
	Service *GatewayServiceConfig `json:"service,omitempty"`
	// How HTTP is handled.
	HTTPOptions *GatewayHTTPOptions `json:"httpOptions,omitempty"`
	// Settings of the proxy, in the form of the release that reads them.
	//
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Envoy *runtime.RawExtension `json:"envoy,omitempty"`
	// What is logged about requests, in the form of the release that reads it.
	//
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Telemetry *runtime.RawExtension `json:"telemetry,omitempty"`
}

// GatewayServiceConfig is what the Services of Gateways have; fields are as those of a Service.
type GatewayServiceConfig struct {
	// Type of the Services.
	//
	// +kubebuilder:default=LoadBalancer
	// +kubebuilder:validation:Enum=LoadBalancer;NodePort
	Type string `json:"type,omitempty"`
	// Where traffic from outside goes: to all nodes, or to those that have an endpoint.
	//
	// +kubebuilder:default=Cluster
	ExternalTrafficPolicy string `json:"externalTrafficPolicy,omitempty"`
	// Implementation that gives the Services their addresses.
	LoadBalancerClass *string `json:"loadBalancerClass,omitempty"`
	// Address families of the Services.
	//
	// +listType=atomic
	IPFamilies []string `json:"ipFamilies,omitempty"`
	// How many address families the Services have.
	IPFamilyPolicy *string `json:"ipFamilyPolicy,omitempty"`
	// Whether the Services are given ports of the nodes.
	AllocateLoadBalancerNodePorts *bool `json:"allocateLoadBalancerNodePorts,omitempty"`
	// Addresses that clients may have.
	//
	// +listType=atomic
	LoadBalancerSourceRanges []string `json:"loadBalancerSourceRanges,omitempty"`
	// Whether these clients are let in or kept out.
	//
	// +kubebuilder:default=Allow
	// +kubebuilder:validation:Enum=Allow;Deny
	LoadBalancerSourceRangesPolicy string `json:"loadBalancerSourceRangesPolicy,omitempty"`
	// Which endpoints are preferred.
	TrafficDistribution *string `json:"trafficDistribution,omitempty"`
}

// GatewayHTTPOptions says how HTTP is handled.
type GatewayHTTPOptions struct {
	// How gRPC-Web is handled.
	GRPCWebTranslation *GatewayGRPCWebTranslation `json:"grpcWebTranslation,omitempty"`
}

// GatewayGRPCWebTranslation says whether gRPC-Web is turned into gRPC.
type GatewayGRPCWebTranslation struct {
	// Whether it is.
	//
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`
}

// CiliumGatewayClassConfigStatus is what the operator reports about parameters.
type CiliumGatewayClassConfigStatus struct {
	// Findings, by type.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
