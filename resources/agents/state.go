// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package agents

import (
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// Pods is the stream of the agents' pods.
var Pods = stream.Core[Pod, corev1.Pod](corev1.SchemeGroupVersion.WithResource("pods"))

// Pod is what duties read of an agent's pod.
type Pod struct {
	PodMeta `json:"metadata"`
	Spec    PodSpec   `json:"spec"`
	Status  PodStatus `json:"status"`
}

// PodMeta is the metadata of an agent's pod.
type PodMeta struct {
	slim.Meta
	Labels            slim.Labels `json:"labels"`
	DeletionTimestamp slim.Time   `json:"deletionTimestamp"`
}

// PodSpec is the spec of an agent's pod.
type PodSpec struct {
	NodeName slim.String `json:"nodeName"`
	Images   slim.Images `json:"containers"`
}

// PodStatus is the status of an agent's pod.
type PodStatus struct {
	Ready slim.Ready `json:"conditions"`
}

// Nodes is the stream of Nodes with what depends on their agents.
var Nodes = stream.Core[Node, corev1.Node](corev1.SchemeGroupVersion.WithResource("nodes"))

// Node is what depends on the agent of a Node.
type Node struct {
	slim.Meta `json:"metadata"`
	Spec      NodeSpec   `json:"spec"`
	Status    NodeStatus `json:"status"`
}

// NodeSpec is the spec of a Node.
type NodeSpec struct {
	Taints []Taint `json:"taints"`
}

// Taint is a taint of a Node, with all that it has. Its JSON is that of the API server.
type Taint struct {
	Key       slim.String `json:"key"`
	Value     slim.String `json:"value,omitzero"`
	Effect    slim.String `json:"effect"`
	TimeAdded slim.Time   `json:"timeAdded,omitzero"`
}

// NodeStatus is the status of a Node.
type NodeStatus struct {
	Conditions []slim.NodeCondition `json:"conditions"`
}

// HasTaint reports whether the node has a taint with a key, whatever its value and its effect.
func (n *Node) HasTaint(key string) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t Taint) bool { return t.Key.String() == key })
}

// State is the state of the agent of a node.
type State uint8

const (
	// Absent: the node has no agent.
	Absent State = iota
	// NotReady: the node has pods of an agent, none of which is ready. A pod that is being deleted is not.
	NotReady
	// Ready: a pod is ready.
	Ready
	// Unknown: no pod is known to be ready, and there is one that cannot be decoded, on this node or another.
	Unknown
)

var byNode = stream.NewIndex("node", func(p *Pod, add func(slim.String)) { add(p.Spec.NodeName) })

// On yields the keys of the pods of the agent of a node.
func On(pods *stream.Store[Pod], node string) iter.Seq[slim.Key] {
	return func(yield func(slim.Key) bool) {
		for p := range stream.ByIndex(pods, byNode, slim.MakeString(node)) {
			if !yield(p.Key()) {
				return
			}
		}
	}
}

// StateOn returns the state of the agent of a node.
func StateOn(pods *stream.Store[Pod], node string) State {
	undecodable := pods.Unreadable()
	state := Absent
	for p := range stream.ByIndex(pods, byNode, slim.MakeString(node)) {
		switch {
		case slices.Contains(undecodable, p.Key()): // it is as it was before
		case p.IsReady():
			return Ready
		default:
			state = NotReady
		}
	}
	if len(undecodable) > 0 {
		return Unknown
	}
	return state
}

// IsReady reports whether the pod is ready, and stays.
func (p *Pod) IsReady() bool { return bool(p.Status.Ready) && p.DeletionTimestamp.IsZero() }
