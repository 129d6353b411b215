// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

// Node is what the duties read of a corev1.Node.
type Node struct {
	NodeMeta `json:"metadata"`
	Spec     NodeSpec   `json:"spec"`
	Status   NodeStatus `json:"status"`
}

// NodeMeta is the metadata of a Node.
type NodeMeta struct {
	Meta
	Labels            Labels                    `json:"labels"`
	Annotations       Subset[CiliumAnnotations] `json:"annotations"`
	DeletionTimestamp Time                      `json:"deletionTimestamp"`
}

// NodeSpec is the spec of a Node.
type NodeSpec struct {
	ProviderID    string  `json:"providerID"`
	Unschedulable bool    `json:"unschedulable"`
	Taints        []Taint `json:"taints"`
}

// Taint is a taint of a Node.
type Taint struct {
	Key    String `json:"key"`
	Value  String `json:"value"`
	Effect String `json:"effect"`
}

// NodeStatus is the status of a Node.
type NodeStatus struct {
	Addresses  []NodeAddress   `json:"addresses"`
	Conditions []NodeCondition `json:"conditions"`
}

// NodeAddress is an address of a Node. Address can be a host name.
type NodeAddress struct {
	Type    String `json:"type"`
	Address string `json:"address"`
}

// NodeCondition is a condition of a Node, without the times that every
// heartbeat changes.
type NodeCondition struct {
	Type   String `json:"type"`
	Status String `json:"status"`
	Reason String `json:"reason"`
}
