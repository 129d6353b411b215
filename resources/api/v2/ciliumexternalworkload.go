// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CiliumExternalWorkload is a machine outside the cluster that takes part in its network.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ciliumexternalworkloads,singular=ciliumexternalworkload,scope=Cluster,shortName={cew},categories={cilium}
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Cilium ID",type=integer,JSONPath=`.status.id`,description="Number of the machine's security identity"
// +kubebuilder:printcolumn:name="IP",type=string,JSONPath=`.status.ip`,description="Address of the machine"
type CiliumExternalWorkload struct {
	metav1.TypeMeta `json:",inline"`
	// +required
	metav1.ObjectMeta `json:"metadata"`

	// What is settled for the machine.
	Spec CiliumExternalWorkloadSpec `json:"spec,omitzero"`
	// What has become of it.
	Status CiliumExternalWorkloadStatus `json:"status,omitzero"`
}

// CiliumExternalWorkloadList is a list of CiliumExternalWorkloads.
//
// +kubebuilder:object:root=true
type CiliumExternalWorkloadList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []CiliumExternalWorkload `json:"items"`
}

// CiliumExternalWorkloadSpec is what is settled for a machine outside the cluster.
type CiliumExternalWorkloadSpec struct {
	// Range of IPv4 addresses on the machine.
	IPv4AllocCIDR IPv4CIDR `json:"ipv4-alloc-cidr,omitempty"`
	// Range of IPv6 addresses on the machine.
	//
	// +kubebuilder:validation:Pattern=`^s*((([0-9A-Fa-f]{1,4}:){7}(:|([0-9A-Fa-f]{1,4})))|(([0-9A-Fa-f]{1,4}:){6}:([0-9A-Fa-f]{1,4})?)|(([0-9A-Fa-f]{1,4}:){5}(((:[0-9A-Fa-f]{1,4}){0,1}):([0-9A-Fa-f]{1,4})?))|(([0-9A-Fa-f]{1,4}:){4}(((:[0-9A-Fa-f]{1,4}){0,2}):([0-9A-Fa-f]{1,4})?))|(([0-9A-Fa-f]{1,4}:){3}(((:[0-9A-Fa-f]{1,4}){0,3}):([0-9A-Fa-f]{1,4})?))|(([0-9A-Fa-f]{1,4}:){2}(((:[0-9A-Fa-f]{1,4}){0,4}):([0-9A-Fa-f]{1,4})?))|(([0-9A-Fa-f]{1,4}:){1}(((:[0-9A-Fa-f]{1,4}){0,5}):([0-9A-Fa-f]{1,4})?))|(:(:|((:[0-9A-Fa-f]{1,4}){1,7}))))(%.+)?s*/([0-9]|[1-9][0-9]|1[0-1][0-9]|12[0-8])$`
	IPv6AllocCIDR string `json:"ipv6-alloc-cidr,omitempty"`
}

// CiliumExternalWorkloadStatus is what has become of a machine outside the cluster.
type CiliumExternalWorkloadStatus struct {
	// Number of the machine's security identity.
	ID int64 `json:"id,omitempty"`
	// Address of the machine.
	IP string `json:"ip,omitempty"`
}
