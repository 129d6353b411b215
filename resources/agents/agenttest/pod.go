// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package agenttest

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Pod is the pod of an agent of a version, such as 1.20.1, on a node: cilium-NODE, with the label by which agents are found.
func Pod(node, version string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "cilium-" + node, Labels: map[string]string{"k8s-app": "cilium"}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "cilium-agent", Image: "agent:v" + version}}},
	}
}
