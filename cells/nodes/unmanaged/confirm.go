// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package unmanaged

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/skep-operator/skep/resources/agents"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
)

// confirm asks the API server whether a pod is still to be restarted: a store may be behind, and an agent just gone.
func (c *controller) confirm(ctx context.Context, ref k8s.Ref) (due bool, err error) {
	endpoint := k8s.Ref{Resource: ciliumio.Endpoints.Resource(), Namespace: ref.Namespace, Name: ref.Name}
	if _, err := c.Client.Get(ctx, endpoint); !k8s.IsNotFound(err, endpoint) {
		return false, err
	}
	p, err := read[corev1.Pod](ctx, c.Client, ref)
	if p == nil || p.DeletionTimestamp != nil || p.Status.Phase != corev1.PodRunning || p.Spec.HostNetwork {
		return false, err
	}
	node, err := read[corev1.Node](ctx, c.Client, k8s.Ref{Resource: agents.Nodes.Resource(), Name: p.Spec.NodeName})
	if node == nil || slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == c.Agents.AgentNotReadyTaintKey }) {
		return false, err
	}
	return c.hasReadyAgent(ctx, node.Name)
}

// hasReadyAgent reads the pods that are known as the agents of a node.
func (c *controller) hasReadyAgent(ctx context.Context, node string) (bool, error) {
	for key := range agents.On(c.agents, node) {
		p, err := read[corev1.Pod](ctx, c.Client, k8s.Ref{Resource: agents.Pods.Resource(), Namespace: key.Namespace, Name: key.Name})
		if err != nil {
			return false, err
		}
		if p != nil && p.Spec.NodeName == node && p.DeletionTimestamp == nil && isReady(p) {
			return true, nil
		}
	}
	return false, nil
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// read returns an object as the API server has it, nil if it does not exist.
func read[T any](ctx context.Context, c k8s.Client, ref k8s.Ref) (*T, error) {
	u, err := c.Get(ctx, ref)
	if k8s.IsNotFound(err, ref) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	obj := new(T)
	return obj, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, obj)
}
