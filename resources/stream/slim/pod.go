// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

// Pod is what the duties on endpoints and identities read of a corev1.Pod.
type Pod struct {
	PodMeta `json:"metadata"`
	Spec    PodSpec   `json:"spec"`
	Status  PodStatus `json:"status"`
}

// PodMeta is the metadata of a Pod.
type PodMeta struct {
	Meta
	Labels            Labels `json:"labels"` // none if LabelsCut
	Controller        Owner  `json:"ownerReferences"`
	CreationTimestamp Time   `json:"creationTimestamp"`
	DeletionTimestamp Time   `json:"deletionTimestamp"`
	// LabelsCut says that the labels of the pod are larger than MaxPodLabels, and are not kept.
	LabelsCut bool `json:"-"`
}

// MaxPodLabels is how many bytes the labels of a pod may have together. An API server bounds the object alone: of a hundred pods with a
// megabyte of labels each, what duties make of them would take all memory. Those of pods that people write have some hundreds.
const MaxPodLabels = 32 << 10

// Trim implements Trimmer.
func (p *Pod) Trim() {
	if p.Labels.Size() > MaxPodLabels {
		p.Labels, p.LabelsCut = Labels{}, true
	}
}

// PodSpec is the spec of a Pod.
type PodSpec struct {
	NodeName           String     `json:"nodeName"`
	ServiceAccountName String     `json:"serviceAccountName"`
	NamedPorts         NamedPorts `json:"containers"`
	HostNetwork        bool       `json:"hostNetwork"`
}

// PodStatus is the status of a Pod.
type PodStatus struct {
	Phase  String  `json:"phase"`
	HostIP Addr    `json:"hostIP"`
	PodIPs []PodIP `json:"podIPs"`
}

// PodIP is one address of a Pod.
type PodIP struct {
	IP Addr `json:"ip"`
}
