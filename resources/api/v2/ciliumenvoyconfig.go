// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// CiliumEnvoyConfig configures the proxies of the nodes for Services of its namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ciliumenvoyconfigs,singular=ciliumenvoyconfig,scope=Namespaced,shortName={cec},categories={cilium}
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the configuration was made"
type CiliumEnvoyConfig struct {
	metav1.TypeMeta `json:",inline"`
	// +required
	metav1.ObjectMeta `json:"metadata"`

	// What the proxies are to do.
	Spec CiliumEnvoyConfigSpec `json:"spec,omitzero"`
}

// CiliumEnvoyConfigList is a list of CiliumEnvoyConfigs.
//
// +kubebuilder:object:root=true
type CiliumEnvoyConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []CiliumEnvoyConfig `json:"items"`
}

// CiliumEnvoyConfigSpec is what the proxies of the nodes are to do.
type CiliumEnvoyConfigSpec struct {
	// Services whose traffic goes to a listener of the proxy.
	Services []EnvoyServiceListener `json:"services,omitempty"`
	// Services whose endpoints the proxy is told, with no traffic taken from them.
	BackendServices []EnvoyBackendService `json:"backendServices,omitempty"`
	// Configuration in Envoy's own terms; each entry names its type by @type.
	//
	// +required
	// +kubebuilder:validation:items:XPreserveUnknownFields
	Resources []runtime.RawExtension `json:"resources,omitzero"`
	// Nodes whose proxies are meant; all when it is absent.
	NodeSelector *LabelSelector `json:"nodeSelector,omitempty"`
}

// EnvoyServiceListener is a Service whose traffic goes to a listener of the proxy.
type EnvoyServiceListener struct {
	// Name of the Service.
	//
	// +required
	Name string `json:"name"`
	// Namespace of the Service.
	Namespace string `json:"namespace,omitempty"`
	// Ports of the Service that are meant; all when there are none.
	Ports []int `json:"ports,omitempty"`
	// Name of the listener; the first one when it is empty. Written even then.
	Listener string `json:"listener"`
}

// EnvoyBackendService is a Service whose endpoints the proxy is told.
type EnvoyBackendService struct {
	// Name of the Service.
	//
	// +required
	Name string `json:"name"`
	// Namespace of the Service.
	Namespace string `json:"namespace,omitempty"`
	// Numbers or names of the ports that are meant; all when there are none.
	Ports []string `json:"number,omitempty"`
}
