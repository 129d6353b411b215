// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

// EndpointSlice is what the duties on Services read of a
// discoveryv1.EndpointSlice.
type EndpointSlice struct {
	EndpointSliceMeta `json:"metadata"`
	AddressType       String         `json:"addressType"`
	Endpoints         []Endpoint     `json:"endpoints"`
	Ports             []EndpointPort `json:"ports"`
}

// EndpointSliceMeta is the metadata of an EndpointSlice.
type EndpointSliceMeta struct {
	Meta
	Labels     Labels `json:"labels"`
	Controller Owner  `json:"ownerReferences"`
}

// Endpoint is one endpoint of an EndpointSlice.
type Endpoint struct {
	Addresses  []string           `json:"addresses"` // host names if the addressType is FQDN
	Conditions EndpointConditions `json:"conditions"`
	Hostname   string             `json:"hostname"`
	TargetRef  TargetRef          `json:"targetRef"`
	NodeName   String             `json:"nodeName"`
	Zone       String             `json:"zone"`
}

// EndpointConditions are the conditions of an Endpoint; nil means unknown,
// which for ready and serving counts as true.
type EndpointConditions struct {
	Ready       *bool `json:"ready"`
	Serving     *bool `json:"serving"`
	Terminating *bool `json:"terminating"`
}

// TargetRef names the object behind an Endpoint, most often a pod. The zero
// TargetRef is none.
type TargetRef struct {
	Kind      String `json:"kind"`
	Namespace String `json:"namespace"`
	Name      string `json:"name"`
}

// EndpointPort is a port of an EndpointSlice. A port number that the object
// leaves open is nil.
type EndpointPort struct {
	Name        String `json:"name"`
	Protocol    String `json:"protocol"`
	AppProtocol String `json:"appProtocol"`
	Port        *int32 `json:"port"`
}
