// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package taints

import (
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/agents"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// action is a write to a node.
type action string

const (
	nothing      action = ""
	removeTaint  action = "remove"
	setTaint     action = "set"
	setCondition action = "condition"
)

// taintAction is what is to be done to the taints of a node, and why nothing is.
func taintAction(c Config, key string, n *agents.Node, agent agents.State) (do action, reason string) {
	tainted := n.HasTaint(key)
	switch {
	case agent == agents.Ready && tainted && c.RemoveCiliumNodeTaints:
		return removeTaint, ""
	case agent == agents.NotReady && !tainted && c.SetCiliumNodeTaints:
		return setTaint, ""
	case tainted:
		return nothing, reasons[agent]
	}
	return nothing, ""
}

// Why a node waits for its agent.
const (
	noNode      = "none: the Node does not exist"
	noAgent     = "waits: the node has no pod of an agent"
	notReady    = "waits: the agent of the node is not ready"
	undecodable = "waits: a pod of an agent cannot be decoded, and may be that of the node"
)

// reasons are why nothing is written for a node whose agent is not ready.
var reasons = map[agents.State]string{agents.Absent: noAgent, agents.NotReady: notReady, agents.Unknown: undecodable}

// taintsAfter are the taints of a node after an action. Others stay, in their order.
func taintsAfter(do action, key string, taints []agents.Taint) []agents.Taint {
	after := slices.Clone(taints)
	if do == setTaint {
		return append(after, agents.Taint{Key: slim.MakeString(key), Effect: slim.MakeString(string(corev1.TaintEffectNoSchedule))})
	}
	return slices.DeleteFunc(after, func(t agents.Taint) bool { return t.Key.String() == key })
}

// operation is one of a JSON patch.
type operation struct {
	Op    string         `json:"op"`
	Path  string         `json:"path"`
	Value []agents.Taint `json:"value"`
}

// taintPatch replaces the taints of a node that still has those of before. No taints are null.
func taintPatch(before, after []agents.Taint) ([]byte, error) {
	const path = "/spec/taints"
	if len(before) == 0 {
		return json.Marshal([]operation{{"test", path, nil}, {"add", path, after}})
	}
	if len(after) == 0 {
		after = nil
	}
	return json.Marshal([]operation{{"test", path, before}, {"replace", path, after}})
}

// The condition of a node whose agent is ready.
const (
	conditionType   = corev1.NodeNetworkUnavailable
	conditionStatus = corev1.ConditionFalse
	conditionReason = "CiliumIsUp"
)

// condition is what is compared of a condition.
type condition struct{ Status, Reason string }

// isUp is the condition of a node whose agent is ready.
var isUp = condition{string(conditionStatus), conditionReason}

// conditionOf is the condition that a node has.
func conditionOf(n *agents.Node) (c condition) {
	for _, nc := range n.Status.Conditions {
		if nc.Type.String() == string(conditionType) {
			c = condition{nc.Status.String(), nc.Reason.String()}
		}
	}
	return c
}

// conditionPatch sets the condition of a node, and no other.
func conditionPatch(now time.Time) ([]byte, error) {
	at := metav1.NewTime(now.UTC())
	type status struct {
		Conditions []corev1.NodeCondition `json:"conditions"`
	}
	return json.Marshal(struct {
		Status status `json:"status"`
	}{status{[]corev1.NodeCondition{{
		Type: conditionType, Status: conditionStatus, Reason: conditionReason, Message: "Cilium is running on this node",
		LastHeartbeatTime: at, LastTransitionTime: at,
	}}}})
}
