// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package agents

import (
	"cmp"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/runtime/cell"
)

// Config selects the pods of agents, and names the taint of nodes whose agent is not ready.
type Config struct {
	CiliumPodNamespace string `flag:"cilium-pod-namespace" usage:"Namespace of the agents' pods; empty for the namespace of the operator"`
	CiliumPodLabels    string `flag:"cilium-pod-labels" usage:"Label selector of the agents' pods"`

	AgentNotReadyTaintKey string `flag:"agent-not-ready-taint-key" usage:"Key of the taint of nodes whose agent is not ready" hidden:"true"`
}

// Validate implements the check of config structs.
func (c Config) Validate() error {
	selector, err := labels.Parse(c.CiliumPodLabels)
	switch {
	case err != nil:
		return cell.Invalid("cilium-pod-labels", "must be a label selector such as k8s-app=cilium: %v", err)
	case c.CiliumPodNamespace != "" && len(validation.IsDNS1123Label(c.CiliumPodNamespace)) > 0:
		return cell.Invalid("cilium-pod-namespace", "%q is no namespace: those are at most 63 lower-case letters, digits and dashes", c.CiliumPodNamespace)
	case len(validation.IsQualifiedName(c.AgentNotReadyTaintKey)) > 0:
		return cell.Invalid("agent-not-ready-taint-key", "must be the key of a taint, such as node.cilium.io/agent-not-ready")
	case selector.Empty():
		return cell.Questionable("cilium-pod-labels", "should not be empty: every pod of the namespace counts as an agent")
	}
	return nil
}

// Selection is what selects the pods of agents.
type Selection struct {
	cell.In

	Config Config
	Shared cluster.Config
}

// Selected are the agents among pods, for stream.ProvideSelected of duties that need them only in some clusters. T has at least the fields
// that the duty reads of a [Pod].
func Selected[T any](pods stream.Kind[T], s Selection) stream.Kind[T] {
	namespace := cmp.Or(s.Config.CiliumPodNamespace, s.Shared.K8sNamespace, "default")
	return pods.InNamespace(namespace).MatchingLabels(s.Config.CiliumPodLabels)
}
