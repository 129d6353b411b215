// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package zones_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/docs/examples/cells/zones"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
)

func TestMain(m *testing.M) { operatortest.Main(m) }

// On a real API server: the CiliumNode of a Node gets its zone.
func TestReconcile(t *testing.T) {
	env := operatortest.NewEnv(t, clustertest.Shared(t), "CiliumNode")
	name := env.Namespace
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: "east"}}}
	if _, err := env.Core.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ciliumNodes := env.Dynamic.Resource(v2.CiliumNodeResource)
	ciliumNode := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumNode", "metadata": map[string]any{"name": name}, "spec": map[string]any{},
	}}
	if _, err := ciliumNodes.Create(t.Context(), ciliumNode, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	op := operatortest.Start(t, zones.Cell, env.Kubeconfig())
	operatortest.Eventually(t, "the CiliumNode has the zone", func() bool {
		n, err := ciliumNodes.Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && n.GetAnnotations()["zones.example.com/zone"] == "east"
	})
	env.CheckHealthy(op)
}
