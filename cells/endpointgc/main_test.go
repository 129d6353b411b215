// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointgc

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
)

func TestMain(m *testing.M) { operatortest.Main(m) }

// world is a namespace, all CiliumEndpoints, and a door to the API server.
type world struct{ *operatortest.Env }

func newWorld(t *testing.T, c *clustertest.Cluster) *world {
	t.Helper()
	w := &world{operatortest.NewEnv(t, c, "CiliumEndpoint", "CiliumNode")}
	w.Clear(endpoints, v2.CiliumNodeResource)
	w.CreateNamespace()
	return w
}

func (w *world) remove(namespace, name string) {
	w.T.Helper()
	err := w.Dynamic.Resource(endpoints).Namespace(namespace).Delete(w.T.Context(), name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		w.T.Fatal(err)
	}
}

func (w *world) endpoints() []unstructured.Unstructured {
	w.T.Helper()
	list, err := w.Dynamic.Resource(endpoints).List(w.T.Context(), metav1.ListOptions{})
	if err != nil {
		w.T.Fatal(err)
	}
	return list.Items
}

// names are those of the endpoints that there are.
func (w *world) names() map[string]bool {
	w.T.Helper()
	names := map[string]bool{}
	for _, e := range w.endpoints() {
		names[e.GetName()] = true
	}
	return names
}

func (w *world) gone(names ...string) {
	w.T.Helper()
	operatortest.Eventually(w.T, fmt.Sprint(names, " are gone"), func() bool {
		has := w.names()
		for _, n := range names {
			if has[n] {
				return false
			}
		}
		return true
	})
}

// pod makes a pod in a phase, and returns its uid.
func (w *world) pod(name string, phase corev1.PodPhase, ips ...string) types.UID {
	w.T.Helper()
	api := w.Core.CoreV1().Pods(w.Namespace)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	operatortest.Eventually(w.T, "pod "+name+" is made", func() bool { // when the service account is there
		made, err := api.Create(w.T.Context(), pod, metav1.CreateOptions{})
		if err == nil {
			pod = made
		}
		return err == nil
	})
	pod.Status.Phase = phase
	for _, ip := range ips {
		pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: ip})
		pod.Status.PodIP = pod.Status.PodIPs[0].IP
	}
	if _, err := api.UpdateStatus(w.T.Context(), pod, metav1.UpdateOptions{}); err != nil {
		w.T.Fatal(err)
	}
	return pod.UID
}

// unresolved is an API that no server has: Kubernetes' own garbage collector
// leaves objects alone whose owner is of it. We look at kinds and names only.
const unresolved = "unresolved.example.com/v1"

type ownerRef struct {
	kind, name string
	uid        types.UID
}

// endpoint makes a CiliumEndpoint, and returns it.
func (w *world) endpoint(name string, addresses []string, owners ...ownerRef) *unstructured.Unstructured {
	w.T.Helper()
	var refs []any
	for _, o := range owners {
		if o.uid == "" {
			o.uid = "00000000-0000-4000-8000-000000000000"
		}
		refs = append(refs, map[string]any{"apiVersion": unresolved, "kind": o.kind, "name": o.name, "uid": string(o.uid)})
	}
	e := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumEndpoint", "metadata": map[string]any{"name": name},
	}}
	if refs != nil {
		_ = unstructured.SetNestedSlice(e.Object, refs, "metadata", "ownerReferences")
	}
	if addresses != nil {
		pair := map[string]any{"ipv4": addresses[0]}
		_ = unstructured.SetNestedSlice(e.Object, []any{pair}, "status", "networking", "addressing")
		_ = unstructured.SetNestedField(e.Object, "10.0.0.9", "status", "networking", "node")
	}
	made, err := w.Dynamic.Resource(endpoints).Namespace(w.Namespace).Create(w.T.Context(), e, metav1.CreateOptions{})
	if err != nil {
		w.T.Fatal(err)
	}
	return made
}

func (w *world) get(name string) *unstructured.Unstructured {
	w.T.Helper()
	e, err := w.Dynamic.Resource(endpoints).Namespace(w.Namespace).Get(w.T.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.T.Fatal(err)
	}
	return e
}

func (w *world) node(name string) {
	w.T.Helper()
	node := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumNode", "metadata": map[string]any{"name": name}, "spec": map[string]any{},
	}}
	if _, err := w.Dynamic.Resource(v2.CiliumNodeResource).Create(w.T.Context(), node, metav1.CreateOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

// quick makes sweeps follow each other.
const quick = "--cilium-endpoint-gc-interval=1s"

func (w *world) start(args ...string) *operatortest.Operator {
	w.T.Helper()
	return operatortest.Start(w.T, Cell, w.Proxy.Kubeconfig(), args...)
}

// requests are those of the duty, as "delete x1: 200".
func (w *world) requests(verb string) []string {
	w.T.Helper()
	var all []string
	for _, r := range w.Proxy.Answered(w.T, 0) {
		if strings.Contains(r.UserAgent, "(endpointgc") && r.Verb == verb {
			all = append(all, fmt.Sprintf("%s %s: %d", r.Verb, r.Name, r.Status))
		}
	}
	return all
}
