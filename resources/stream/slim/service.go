// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

import corev1 "k8s.io/api/core/v1"

// Service is what the duties on Services read of a corev1.Service.
type Service struct {
	ServiceMeta `json:"metadata"`
	Spec        ServiceSpec          `json:"spec"`
	Status      corev1.ServiceStatus `json:"status"` // whole: it is written back as a whole
}

// ServiceMeta is the metadata of a Service.
type ServiceMeta struct {
	Meta
	Generation        int64                     `json:"generation"`
	Labels            Labels                    `json:"labels"`
	Annotations       Subset[CiliumAnnotations] `json:"annotations"`
	Controller        Owner                     `json:"ownerReferences"`
	CreationTimestamp Time                      `json:"creationTimestamp"`
	DeletionTimestamp Time                      `json:"deletionTimestamp"`
}

// ServiceSpec is the spec of a Service. A field that the object does not have
// is zero.
type ServiceSpec struct {
	Type                  String        `json:"type"`
	ClusterIP             string        `json:"clusterIP"`
	ClusterIPs            []string      `json:"clusterIPs"`
	ExternalIPs           []string      `json:"externalIPs"`
	LoadBalancerIP        string        `json:"loadBalancerIP"`
	LoadBalancerClass     String        `json:"loadBalancerClass"`
	IPFamilies            []String      `json:"ipFamilies"`
	IPFamilyPolicy        String        `json:"ipFamilyPolicy"`
	ExternalTrafficPolicy String        `json:"externalTrafficPolicy"`
	InternalTrafficPolicy String        `json:"internalTrafficPolicy"`
	Selector              Labels        `json:"selector"`
	Ports                 []ServicePort `json:"ports"`
}

// ServicePort is a port of a Service.
type ServicePort struct {
	Name        String `json:"name"`
	Protocol    String `json:"protocol"`
	AppProtocol String `json:"appProtocol"`
	Port        int32  `json:"port"`
	NodePort    int32  `json:"nodePort"`
}
