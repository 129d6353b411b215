// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/api/v2alpha1"
	"github.com/skep-operator/skep/resources/clustertest"
)

// tenants is a world of its own in which pods of some namespaces come and go. Its
// methods are for one goroutine.
type tenants struct {
	*world
	node       string                                     // that pods are on, if not empty
	namespaces map[string]map[string]string               // labels by name
	pods       map[types.NamespacedName]map[string]string // labels by name
}

// managed makes the operator make identities, and slices of CiliumEndpoints, and
// look for garbage all the time.
var managed = []string{
	"--identity-management-mode=operator", "--enable-cilium-endpoint-slice", "--ces-slice-mode=fcfs",
	"--identity-gc-interval=1s", "--identity-heartbeat-timeout=2s", "--cilium-endpoint-gc-interval=1s", "--sweep-max-share=1",
}

func newTenants(t *testing.T, opts ...clustertest.Option) *tenants {
	t.Helper()
	w := newWorldIn(t, clustertest.Start(t, opts...))
	return &tenants{world: w, namespaces: map[string]map[string]string{}, pods: map[types.NamespacedName]map[string]string{}}
}

// define lets an operator define the kinds.
func (w *tenants) define() {
	w.t.Helper()
	o, _ := w.run("definer", nil, managed...)
	eventually(w.t, "kinds are served", func() bool {
		for _, r := range []string{"ciliumidentities", "ciliumendpoints"} {
			if _, err := w.dynamic.Resource(v2.SchemeGroupVersion.WithResource(r)).List(w.t.Context(), metav1.ListOptions{}); err != nil {
				return false
			}
		}
		_, err := w.dynamic.Resource(v2alpha1.CiliumEndpointSliceResource).List(w.t.Context(), metav1.ListOptions{})
		return err == nil
	})
	o.stop()
}

// ctx outlives the test by what it has to clear up.
func (w *tenants) ctx() context.Context { return context.WithoutCancel(w.t.Context()) }

// label makes a namespace, or gives it other labels.
func (w *tenants) label(name string, labels map[string]string) {
	w.t.Helper()
	all := maps.Clone(labels)
	if all == nil {
		all = map[string]string{}
	}
	all["kubernetes.io/metadata.name"] = name
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: all}}
	var err error
	if w.namespaces[name] == nil {
		_, err = w.core.CoreV1().Namespaces().Create(w.ctx(), ns, metav1.CreateOptions{})
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		if _, err := w.core.CoreV1().ServiceAccounts(name).Create(w.ctx(), account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			w.t.Error(err)
		}
	} else {
		_, err = w.core.CoreV1().Namespaces().Update(w.ctx(), ns, metav1.UpdateOptions{})
	}
	if err != nil {
		w.t.Error(err)
		return
	}
	w.namespaces[name] = all
}

// begin makes a pod.
func (w *tenants) begin(namespace, name string, labels map[string]string) types.UID {
	w.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       corev1.PodSpec{NodeName: w.node, ServiceAccountName: "default", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	made, err := w.core.CoreV1().Pods(namespace).Create(w.ctx(), pod, metav1.CreateOptions{})
	if err != nil {
		w.t.Error(err)
		return ""
	}
	// A pod on a node has that node's labels of its place, too.
	w.pods[types.NamespacedName{Namespace: namespace, Name: name}] = made.Labels
	return made.UID
}

func (w *tenants) end(namespace, name string) {
	w.t.Helper()
	now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}
	if err := w.core.CoreV1().Pods(namespace).Delete(w.ctx(), name, now); err != nil {
		w.t.Error(err)
	}
	delete(w.pods, types.NamespacedName{Namespace: namespace, Name: name})
}

// endpoint makes what the agent tells about a pod that has this identity.
func (w *tenants) endpoint(namespace, name string, pod types.UID, identity int64, ip string) {
	w.t.Helper()
	e := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumEndpoint", "metadata": map[string]any{"name": name},
		"status": map[string]any{
			"identity":   map[string]any{"id": identity},
			"networking": map[string]any{"addressing": []any{map[string]any{"ipv4": ip}}, "node": "192.168.0.1"},
		},
	}}
	e.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: name, UID: pod}})
	if _, err := w.dynamic.Resource(v2.CiliumEndpointResource).Namespace(namespace).Create(w.ctx(), e, metav1.CreateOptions{}); err != nil {
		w.t.Error(err)
	}
}

// wanted are the label sets of all pods, as identities have them.
func (w *tenants) wanted() []string {
	sets := map[string]bool{}
	for pod, labels := range w.pods {
		set := map[string]string{
			"k8s:io.cilium.k8s.policy.cluster":        "default",
			"k8s:io.cilium.k8s.policy.serviceaccount": "default",
			"k8s:io.kubernetes.pod.namespace":         pod.Namespace,
		}
		for k, v := range w.namespaces[pod.Namespace] {
			set["k8s:io.cilium.k8s.namespace.labels."+k] = v
		}
		for k, v := range labels {
			set["k8s:"+k] = v
		}
		sets[written(set)] = true
	}
	return slices.Sorted(maps.Keys(sets))
}

func written(set map[string]string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(set)) {
		fmt.Fprintf(&b, "%s=%s;", k, set[k])
	}
	return b.String()
}

func labelSet(identity *unstructured.Unstructured) string {
	set, _, _ := unstructured.NestedStringMap(identity.Object, "security-labels")
	return written(set)
}

// identities are the label sets of all identities, by number.
func (w *tenants) identities() map[string]string {
	w.t.Helper()
	list, err := w.dynamic.Resource(v2.CiliumIdentityResource).List(w.ctx(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	all := map[string]string{}
	for i := range list.Items {
		all[list.Items[i].GetName()] = labelSet(&list.Items[i])
	}
	return all
}

// identityOf waits for the identity of a label set of a pod.
func (w *tenants) identityOf(namespace string, labels map[string]string) (number string) {
	w.t.Helper()
	alone := &tenants{world: w.world, namespaces: w.namespaces, pods: map[types.NamespacedName]map[string]string{{Namespace: namespace, Name: "x"}: labels}}
	set := alone.wanted()[0]
	eventually(w.t, "there is an identity of "+set, func() bool {
		for n, has := range w.identities() {
			if has == set {
				number = n
			}
		}
		return number != ""
	})
	return number
}

// eachHasOne waits until there is one identity for each label set of a pod, and
// no other.
func (w *tenants) eachHasOne() {
	w.t.Helper()
	var has []string
	want := w.wanted()
	defer func() {
		if w.t.Failed() {
			w.t.Logf("want\n%s\nhas\n%s", strings.Join(want, "\n"), strings.Join(has, "\n"))
		}
	}()
	eventually(w.t, fmt.Sprintf("there is one identity for each of %d label sets, and no other", len(want)), func() bool {
		has = slices.Sorted(maps.Values(w.identities()))
		return slices.Equal(has, want)
	})
}

// slicedIn are the slices that have each endpoint, by its namespace and name.
func (w *tenants) slicedIn() map[string][]string {
	w.t.Helper()
	list, err := w.dynamic.Resource(v2alpha1.CiliumEndpointSliceResource).List(w.ctx(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	in := map[string][]string{}
	for i := range list.Items {
		for _, endpoint := range endpointsOf(&list.Items[i]) {
			in[endpoint] = append(in[endpoint], list.Items[i].GetName())
		}
	}
	return in
}

func endpointsOf(slice *unstructured.Unstructured) (names []string) {
	namespace, _, _ := unstructured.NestedString(slice.Object, "namespace")
	endpoints, _, _ := unstructured.NestedSlice(slice.Object, "endpoints")
	for _, e := range endpoints {
		name, _, _ := unstructured.NestedString(e.(map[string]any), "name")
		names = append(names, namespace+"/"+name)
	}
	return names
}

// registrar sees every identity that ever was, and that none changes its meaning.
// A number that was free may come to mean something else: that it does not soon is
// kept by the leader that saw it freed, and tested in cells/identity.
type registrar struct {
	t *testing.T

	mu      sync.Mutex
	means   map[string]string // label set by number
	made    int
	deleted int
	twins   int            // identities made though there was one of the label set
	now     map[string]int // identities by label set
}

func (w *tenants) registrar() *registrar {
	w.t.Helper()
	r := &registrar{t: w.t, means: map[string]string{}, now: map[string]int{}}
	list, err := w.dynamic.Resource(v2.CiliumIdentityResource).List(w.ctx(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range list.Items {
		r.see(watch.Added, &list.Items[i])
	}
	w.follow(v2.CiliumIdentityResource, list.GetResourceVersion(), r.see)
	return r
}

func (r *registrar) see(kind watch.EventType, identity *unstructured.Unstructured) {
	r.mu.Lock()
	defer r.mu.Unlock()
	number, set := identity.GetName(), labelSet(identity)
	if before := r.means[number]; before != "" && before != set {
		r.t.Errorf("revision %s: %s means %s, and meant %s", identity.GetResourceVersion(), number, set, before)
	}
	r.means[number] = set
	switch kind {
	case watch.Added:
		r.made++
		if r.now[set]++; r.now[set] > 1 {
			r.twins++
		}
	case watch.Deleted:
		delete(r.means, number)
		r.deleted++
		r.now[set]--
	}
}

// count is how many identities were made.
func (r *registrar) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.made
}

func (r *registrar) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf("%d identities made, %d of them beside another of the label set, %d deleted", r.made, r.twins, r.deleted)
}
