// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudtest

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/operatortest"
)

// Nodes are the CiliumNodes of an API server, as agents write them. An error ends the test.
type Nodes struct {
	dynamic.ResourceInterface
	t testing.TB
}

// NewNodes returns the CiliumNodes of an environment.
func NewNodes(t testing.TB, env *operatortest.Env) Nodes {
	return Nodes{env.Dynamic.Resource(v2.CiliumNodeResource), t}
}

// Register creates a CiliumNode without a status. edit may be nil.
func (n Nodes) Register(name, instance string, edit func(*v2.CiliumNode)) {
	n.t.Helper()
	obj := &v2.CiliumNode{TypeMeta: metav1.TypeMeta{APIVersion: "cilium.io/v2", Kind: "CiliumNode"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
	obj.Spec.InstanceID = instance
	if edit != nil {
		edit(obj)
	}
	u := n.unstructured(obj)
	delete(u.Object, "status")
	if _, err := n.Create(n.t.Context(), u, metav1.CreateOptions{}); err != nil {
		n.t.Fatal(err)
	}
}

// Read returns a CiliumNode.
func (n Nodes) Read(name string) *v2.CiliumNode {
	n.t.Helper()
	u, err := n.Get(n.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	obj := &v2.CiliumNode{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, obj); err != nil {
		n.t.Fatal(err)
	}
	return obj
}

// Edit changes what agents write: the status, or the spec. It is repeated after a conflict.
func (n Nodes) Edit(name string, status bool, edit func(*v2.CiliumNode)) {
	n.t.Helper()
	operatortest.Eventually(n.t, name+" is edited", func() bool {
		obj := n.Read(name)
		edit(obj)
		u := n.unstructured(obj)
		var err error
		if status {
			_, err = n.UpdateStatus(n.t.Context(), u, metav1.UpdateOptions{})
		} else {
			_, err = n.Update(n.t.Context(), u, metav1.UpdateOptions{})
		}
		return err == nil
	})
}

func (n Nodes) unstructured(obj *v2.CiliumNode) *unstructured.Unstructured {
	n.t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		n.t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: content}
}
