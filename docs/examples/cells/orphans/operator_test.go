// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package orphans_test

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/docs/examples/cells/orphans"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
)

func TestMain(m *testing.M) { operatortest.Main(m) }

// On a real API server: a CiliumNode without a Node is deleted.
func TestSweep(t *testing.T) {
	env := operatortest.NewEnv(t, clustertest.Shared(t), "CiliumNode")
	ciliumNodes := env.Dynamic.Resource(v2.CiliumNodeResource)
	orphan := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumNode", "metadata": map[string]any{"name": env.Namespace}, "spec": map[string]any{},
	}}
	if _, err := ciliumNodes.Create(t.Context(), orphan, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	op := operatortest.Start(t, orphans.Cell, env.Kubeconfig(), "--orphans-interval=100ms")
	operatortest.Eventually(t, "the CiliumNode is deleted", func() bool {
		_, err := ciliumNodes.Get(t.Context(), orphan.GetName(), metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	env.CheckHealthy(op)
}
