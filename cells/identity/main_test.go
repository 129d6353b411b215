// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell"
)

func TestMain(m *testing.M) { operatortest.Main(m) }

type pairs = map[string]string

// world is a namespace, all CiliumIdentities, and a door to the API server.
type world struct {
	t          testing.TB
	proxy      *clustertest.Proxy
	namespace  string
	core       kubernetes.Interface
	dynamic    dynamic.Interface
	controller *controller // of the operator that was started last
}

func newWorld(t testing.TB) *world {
	t.Helper()
	s := operatortest.NewEnv(t, clustertest.Shared(t), "CiliumIdentity", "CiliumEndpoint", "CiliumEndpointSlice", "CiliumNode")
	w := &world{t: t, proxy: s.Proxy, namespace: s.Namespace, core: s.Core, dynamic: s.Dynamic}
	w.clear()
	w.newNamespace(w.namespace, nil)
	return w
}

// clear deletes what an earlier test left.
func (w *world) clear() {
	w.t.Helper()
	namespaces, err := w.core.CoreV1().Namespaces().List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}
	for _, n := range namespaces.Items {
		if err := w.core.CoreV1().Pods(n.Name).DeleteCollection(w.t.Context(), now, metav1.ListOptions{}); err != nil {
			w.t.Fatal(err)
		}
		if err := w.dynamic.Resource(v2.CiliumEndpointResource).Namespace(n.Name).DeleteCollection(w.t.Context(), now, metav1.ListOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := w.dynamic.Resource(v2.CiliumIdentityResource).DeleteCollection(w.t.Context(), now, metav1.ListOptions{}); err != nil {
		w.t.Fatal(err)
	}
	operatortest.Eventually(w.t, "all is gone", func() bool {
		pods, err := w.core.CoreV1().Pods("").List(w.t.Context(), metav1.ListOptions{})
		return err == nil && len(pods.Items) == 0 && len(w.identities()) == 0
	})
}

func (w *world) newNamespace(name string, labels pairs) {
	w.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	if _, err := w.core.CoreV1().Namespaces().Create(w.t.Context(), ns, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.account(name, "default")
}

// account makes a service account, or waits for the one that is made anyway.
func (w *world) account(namespace, name string) {
	w.t.Helper()
	api := w.core.CoreV1().ServiceAccounts(namespace)
	if name != "default" {
		if _, err := api.Create(w.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
	operatortest.Eventually(w.t, "service account "+name+" is there", func() bool {
		_, err := api.Get(w.t.Context(), name, metav1.GetOptions{})
		return err == nil
	})
}

func (w *world) labelNamespace(label string, value *string) {
	w.t.Helper()
	w.patchNamespace("labels", label, value)
}

func (w *world) patchNamespace(field, key string, value *string) {
	w.t.Helper()
	text := "null"
	if value != nil {
		text = fmt.Sprintf("%q", *value)
	}
	patch := fmt.Sprintf(`{"metadata":{%q:{%q:%s}}}`, field, key, text)
	if _, err := w.core.CoreV1().Namespaces().Patch(w.t.Context(), w.namespace, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// pod makes a pod with these labels.
func (w *world) pod(name string, labels pairs, change ...func(*corev1.Pod)) {
	w.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	for _, f := range change {
		f(pod)
	}
	if _, err := w.core.CoreV1().Pods(w.namespace).Create(w.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func onNode(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeName = name }
}

func (w *world) deletePod(name string) {
	w.t.Helper()
	if err := w.core.CoreV1().Pods(w.namespace).Delete(w.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}); err != nil {
		w.t.Fatal(err)
	}
}

// with are the labels of the identity of a pod of the namespace with these labels.
func (w *world) with(labels pairs) pairs {
	all := pairs{
		"k8s:io.cilium.k8s.namespace.labels.kubernetes.io/metadata.name": w.namespace,
		"k8s:io.cilium.k8s.policy.cluster":                               "default",
		"k8s:io.cilium.k8s.policy.serviceaccount":                        "default",
		"k8s:io.kubernetes.pod.namespace":                                w.namespace,
	}
	for k, v := range labels {
		all["k8s:"+k] = v
	}
	return all
}

// identity makes an identity, as agents do.
func (w *world) identity(name string, labels pairs) {
	w.t.Helper()
	if err := w.createIdentity(name, labels); err != nil {
		w.t.Fatal(err)
	}
}

// store makes an identity as it is.
func (w *world) store(u *unstructured.Unstructured) {
	w.t.Helper()
	if _, err := w.dynamic.Resource(v2.CiliumIdentityResource).Create(w.t.Context(), u, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) createIdentity(name string, labels pairs) error {
	_, err := w.dynamic.Resource(v2.CiliumIdentityResource).Create(w.t.Context(), identityObject(name, labels), metav1.CreateOptions{})
	return err
}

func identityObject(name string, labels pairs) *unstructured.Unstructured {
	content := map[string]any{}
	for k, v := range labels {
		content[k] = v
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumIdentity", "metadata": map[string]any{"name": name}, "security-labels": content,
	}}
}

func (w *world) deleteIdentity(name string) {
	w.t.Helper()
	if err := w.dynamic.Resource(v2.CiliumIdentityResource).Delete(w.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// identities are those that there are, by name.
func (w *world) identities() map[string]*unstructured.Unstructured {
	w.t.Helper()
	list, err := w.dynamic.Resource(v2.CiliumIdentityResource).List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	all := map[string]*unstructured.Unstructured{}
	for i := range list.Items {
		all[list.Items[i].GetName()] = &list.Items[i]
	}
	return all
}

func securityLabels(u *unstructured.Unstructured) pairs {
	labels, _, _ := unstructured.NestedStringMap(u.Object, "security-labels")
	return labels
}

// named are the names of the identities with these labels.
func (w *world) named(labels pairs) (names []string) {
	w.t.Helper()
	all := w.identities()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if maps.Equal(labels, securityLabels(all[name])) {
			names = append(names, name)
		}
	}
	return names
}

// made waits for the identity with these labels.
func (w *world) made(labels pairs) *unstructured.Unstructured {
	w.t.Helper()
	var names []string
	operatortest.Eventually(w.t, fmt.Sprint("an identity has ", labels), func() bool {
		names = w.named(labels)
		return len(names) > 0
	})
	if len(names) > 1 {
		w.t.Fatalf("%v have %v", names, labels)
	}
	return w.identities()[names[0]]
}

// only waits until there are identities with these labels, and no others.
func (w *world) only(all ...pairs) {
	w.t.Helper()
	for _, labels := range all {
		w.made(labels)
	}
	for name, u := range w.identities() {
		if has := securityLabels(u); !slices.ContainsFunc(all, func(l pairs) bool { return maps.Equal(l, has) }) {
			w.t.Errorf("identity %s has %v", name, has)
		}
	}
}

// bears waits until a pod is known to have the identity of this name.
func (w *world) bears(pod, name string) {
	w.t.Helper()
	var number identity.Number
	var known bool
	operatortest.Eventually(w.t, pod+" has identity "+name, func() bool {
		number, known = w.of(pod)
		return known && number.String() == name
	})
}

func (w *world) of(pod string) (identity.Number, bool) {
	return w.controller.ForPod(podName(w.namespace, pod))
}

// start runs an operator, and waits until it knows what there is.
func (w *world) start(args ...string) *operatortest.Operator {
	w.t.Helper()
	return w.startAs(w.proxy.Kubeconfig(), args...)
}

func (w *world) startAs(kubeconfig string, args ...string) *operatortest.Operator {
	w.t.Helper()
	o := w.launch(kubeconfig, args...)
	select {
	case <-w.controller.Complete():
	case <-w.t.Context().Done():
	}
	return o
}

func (w *world) launch(kubeconfig string, args ...string) *operatortest.Operator {
	w.t.Helper()
	probe := cell.Module("test.assigned", "Tells the test who decides", cell.Invoke(func(a identity.Assignments) { w.controller = a.(*controller) }))
	return operatortest.Start(w.t, cell.Set(Cell, probe), kubeconfig, append([]string{"--identity-management-mode=operator", "--operator-k8s-client-qps=1000", "--operator-k8s-client-burst=2000"}, args...)...)
}

// requests are those of the duty that are no reads of streams, as "create: 201".
func (w *world) requests() (all []string) {
	w.t.Helper()
	for _, r := range w.proxy.Answered(w.t, 0) {
		if !strings.Contains(r.UserAgent, "(identity)") {
			continue
		}
		text := r.Verb
		if r.Name != "" {
			text += " " + r.Name
		}
		all = append(all, fmt.Sprintf("%s: %d", text, r.Status))
	}
	return all
}

func (w *world) requested(want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.requests()); diff != "" {
		w.t.Error("requests: ", diff)
	}
}

func mustNumber(t testing.TB, name string) identity.Number {
	t.Helper()
	n, ok := identity.ParseNumber(name)
	if !ok {
		t.Fatalf("%q is no number", name)
	}
	return n
}

// drawing makes the table draw these numbers, then any.
func drawing(t *testing.T, tb *table, numbers ...identity.Number) func(of int) int {
	t.Helper()
	return func(of int) int {
		if len(numbers) == 0 {
			return 0
		}
		want := numbers[0]
		numbers = numbers[1:]
		skip := 0
		for n := tb.numbers.bounds.Min; n < want; n++ {
			if _, held := tb.numbers.held.OwnerOf(n); !held {
				skip++
			}
		}
		return skip
	}
}

// endpoint makes a CiliumEndpoint that has an identity.
func (w *world) endpoint(name, number string) {
	w.t.Helper()
	e := &unstructured.Unstructured{}
	if err := e.UnmarshalJSON(fmt.Appendf(nil, `{"apiVersion":"cilium.io/v2","kind":"CiliumEndpoint","metadata":{"name":%q},"status":{"identity":{"id":%s}}}`, name, number)); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.dynamic.Resource(v2.CiliumEndpointResource).Namespace(w.namespace).Create(w.t.Context(), e, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	operatortest.Eventually(w.t, "the endpoint is seen", func() bool { return w.carried(number) })
}

func (w *world) carried(number string) (is bool) {
	w.controller.update(func(t *table) { is = t.inUseByEndpoint(mustNumber(w.t, number)) })
	return is
}

func (w *world) deleteEndpoint(name string) {
	w.t.Helper()
	if err := w.dynamic.Resource(v2.CiliumEndpointResource).Namespace(w.namespace).Delete(w.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) eventuallyNotCarried(n identity.Number) {
	w.t.Helper()
	operatortest.Eventually(w.t, "the endpoint is seen to be gone", func() bool { return !w.carried(n.String()) })
}
