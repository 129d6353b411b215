// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodegc

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
)

func TestMain(m *testing.M) { operatortest.Main(m) }

// world is all Nodes and CiliumNodes of the cluster, and a door to it. One Node
// is there.
type world struct {
	t       *testing.T
	proxy   *clustertest.Proxy
	core    kubernetes.Interface
	objects dynamic.ResourceInterface // CiliumNodes
}

func newWorld(t *testing.T) *world {
	t.Helper()
	s := operatortest.NewEnv(t, clustertest.Shared(t), "CiliumNode")
	w := &world{t, s.Proxy, s.Core, s.Dynamic.Resource(v2.CiliumNodeResource)}
	if err := w.objects.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := w.core.CoreV1().Nodes().DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	w.node("one")
	return w
}

func (w *world) node(name string) {
	w.t.Helper()
	if _, err := w.core.CoreV1().Nodes().Create(w.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) removeNode(name string) {
	w.t.Helper()
	if err := w.core.CoreV1().Nodes().Delete(w.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// ciliumNode makes a CiliumNode, changed by edits.
func (w *world) ciliumNode(name string, edits ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	w.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumNode", "metadata": map[string]any{"name": name}, "spec": map[string]any{},
	}}
	for _, edit := range edits {
		edit(u)
	}
	made, err := w.objects.Create(w.t.Context(), u, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return made
}

// annotated says that a CiliumNode is wanted, or not.
func annotated(value string) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{keep: value}) }
}

// owned gives a CiliumNode an owner that Kubernetes' own garbage collector cannot
// find out about.
func owned(u *unstructured.Unstructured) {
	u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "unresolved.example.com/v1", Kind: "Node", Name: "gone", UID: "00000000-0000-4000-8000-000000000000"}})
}

func (w *world) names() map[string]bool {
	w.t.Helper()
	list, err := w.objects.List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	names := map[string]bool{}
	for _, u := range list.Items {
		names[u.GetName()] = true
	}
	return names
}

func (w *world) gone(names ...string) {
	w.t.Helper()
	operatortest.Eventually(w.t, fmt.Sprint(names, " are gone"), func() bool {
		has := w.names()
		for _, n := range names {
			if has[n] {
				return false
			}
		}
		return true
	})
}

// stay checks that CiliumNodes are there.
func (w *world) stay(names ...string) {
	w.t.Helper()
	has := w.names()
	for _, n := range names {
		if !has[n] {
			w.t.Errorf("%s is gone", n)
		}
	}
}

func (w *world) start(args ...string) *operatortest.Operator {
	w.t.Helper()
	return operatortest.Start(w.t, Cell, w.proxy.Kubeconfig(), append([]string{"--nodes-gc-interval=1s"}, args...)...)
}

func became(o *operatortest.Operator, outcome string) float64 {
	return o.Metric("sweep_objects_total", "nodegc.periodic", outcome)
}
