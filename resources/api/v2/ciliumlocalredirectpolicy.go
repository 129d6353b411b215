// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CiliumLocalRedirectPolicy sends traffic for an address or a Service to pods of the same node.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ciliumlocalredirectpolicies,singular=ciliumlocalredirectpolicy,scope=Namespaced,shortName={clrp},categories={cilium,ciliumpolicy}
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the policy was made"
type CiliumLocalRedirectPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +required
	metav1.ObjectMeta `json:"metadata"`

	// What the policy says.
	Spec CiliumLocalRedirectPolicySpec `json:"spec,omitzero"`
	// What the agents report about the policy.
	Status CiliumLocalRedirectPolicyStatus `json:"status,omitzero"`
}

// CiliumLocalRedirectPolicyList is a list of CiliumLocalRedirectPolicies.
//
// +kubebuilder:object:root=true
type CiliumLocalRedirectPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []CiliumLocalRedirectPolicy `json:"items"`
}

// CiliumLocalRedirectPolicySpec says which traffic goes to which pods of the same node.
type CiliumLocalRedirectPolicySpec struct {
	// The traffic.
	//
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="redirectFrontend is immutable"
	RedirectFrontend RedirectFrontend `json:"redirectFrontend"`
	// The pods.
	//
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="redirectBackend is immutable"
	RedirectBackend RedirectBackend `json:"redirectBackend"`
	// Whether traffic from the chosen pods themselves goes its usual way.
	//
	// +kubebuilder:default=false
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="skipRedirectFromBackend is immutable"
	SkipRedirectFromBackend bool `json:"skipRedirectFromBackend,omitempty"`
	// What the policy is for, for people.
	Description string `json:"description,omitempty"`
}

// RedirectFrontend is traffic for an address or for a Service.
//
// +skep:validation:oneOf=addressMatcher;serviceMatcher
type RedirectFrontend struct {
	// Traffic for an address.
	AddressMatcher *RedirectAddress `json:"addressMatcher,omitempty"`
	// Traffic for a Service.
	ServiceMatcher *RedirectService `json:"serviceMatcher,omitempty"`
}

// RedirectAddress is traffic for ports of an address.
type RedirectAddress struct {
	// The address.
	//
	// +required
	IP IPAddress `json:"ip"`
	// The ports.
	//
	// +required
	ToPorts []RedirectPort `json:"toPorts"`
}

// RedirectService is traffic for ports of a Service.
type RedirectService struct {
	// Name of the Service.
	//
	// +required
	ServiceName string `json:"serviceName"`
	// Namespace of the Service, which has to be the policy's own.
	//
	// +required
	Namespace string `json:"namespace"`
	// The ports; all when there are none.
	ToPorts []RedirectPort `json:"toPorts,omitempty"`
}

// RedirectBackend is where traffic is sent instead.
type RedirectBackend struct {
	// Pods of the same node that take the traffic.
	//
	// +required
	LocalEndpointSelector LabelSelector `json:"localEndpointSelector"`
	// Their ports.
	//
	// +required
	ToPorts []RedirectPort `json:"toPorts"`
}

// RedirectPort is a port at either end of a redirection.
type RedirectPort struct {
	// Number of the port.
	//
	// +required
	// +kubebuilder:validation:Pattern=`^()([1-9]|[1-5]?[0-9]{2,4}|6[1-4][0-9]{3}|65[1-4][0-9]{2}|655[1-2][0-9]|6553[1-5])$`
	Port string `json:"port"`
	// Transport protocol of the port.
	//
	// +required
	// +kubebuilder:validation:Enum=TCP;UDP
	Protocol string `json:"protocol"`
	// Name that pairs ports of both ends when there are several.
	//
	// +kubebuilder:validation:Pattern=`^([0-9]{1,4})|([a-zA-Z0-9]-?)*[a-zA-Z](-?[a-zA-Z0-9])*$`
	Name string `json:"name,omitempty"`
}

// CiliumLocalRedirectPolicyStatus is what the agents report about a redirection.
type CiliumLocalRedirectPolicyStatus struct {
	// Whether the redirection is in force.
	OK bool `json:"ok,omitempty"`
}
