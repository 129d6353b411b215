// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package unmanaged

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/cells/internal/stockchart"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
)

// world is a namespace with a node, its agent, and pods of one test.
type world struct{ *operatortest.Env }

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	w := &world{operatortest.NewEnv(t, clustertest.Shared(t), "CiliumEndpoint")}
	w.CreateNamespace()
	_, err := w.Core.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.pod("agent", "cilium", time.Hour, true)
	return w
}

func (w *world) start(kubeconfig string, args ...string) *operatortest.Operator {
	w.T.Helper()
	return operatortest.Start(w.T, Cell, kubeconfig, append([]string{
		"--cilium-pod-namespace=" + w.Namespace, "--cilium-pod-labels=app=cilium", "--unmanaged-pod-watcher-interval=1",
		"--pod-restart-selector=app=dns,test=" + w.Namespace,
	}, args...)...)
}

// pod creates a running pod that has started some time ago.
func (w *world) pod(name, app string, age time.Duration, ready bool) {
	w.T.Helper()
	api := w.Core.CoreV1().Pods(w.Namespace)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app, "test": w.Namespace}},
		Spec:       corev1.PodSpec{NodeName: w.Namespace, Containers: []corev1.Container{{Name: "c", Image: "i"}}, TerminationGracePeriodSeconds: new(int64)},
	}
	operatortest.Eventually(w.T, "pod "+name+" is created", func() bool { // when the service account exists
		made, err := api.Create(w.T.Context(), p, metav1.CreateOptions{})
		if err == nil {
			p = made
		}
		return err == nil
	})
	at := metav1.NewTime(time.Now().Add(-age))
	p.Status.Phase, p.Status.StartTime = corev1.PodRunning, &at
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
	if ready {
		p.Status.Conditions[0].Status = corev1.ConditionTrue
	}
	if _, err := api.UpdateStatus(w.T.Context(), p, metav1.UpdateOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

func (w *world) endpoint(name string) {
	w.T.Helper()
	e := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "cilium.io/v2", "kind": "CiliumEndpoint", "metadata": map[string]any{"name": name}}}
	if _, err := w.Dynamic.Resource(ciliumio.Endpoints.Resource()).Namespace(w.Namespace).Create(w.T.Context(), e, metav1.CreateOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

func (w *world) exists(name string) bool {
	w.T.Helper()
	list, err := w.Core.CoreV1().Pods(w.Namespace).List(w.T.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		w.T.Fatal(err)
	}
	return len(list.Items) > 0
}

func (w *world) gone(names ...string) {
	w.T.Helper()
	for _, name := range names {
		operatortest.Eventually(w.T, name+" is restarted", func() bool { return !w.exists(name) })
	}
}

func (w *world) stay(names ...string) {
	w.T.Helper()
	for _, name := range names {
		if !w.exists(name) {
			w.T.Errorf("%s was restarted", name)
		}
	}
}

// deletes are the pods that the operator has asked to delete, in their order.
func (w *world) deletes() (names []string) {
	for _, r := range w.Proxy.Requests(w.T, 0) {
		if r.Verb == "delete" && r.Resource == "pods" {
			names = append(names, r.Name)
		}
	}
	return names
}

func (w *world) events(pod, reason string) (n int) {
	w.T.Helper()
	list, err := w.Core.CoreV1().Events(w.Namespace).List(w.T.Context(), metav1.ListOptions{})
	if err != nil {
		w.T.Fatal(err)
	}
	for _, e := range list.Items {
		if e.InvolvedObject.Kind == "Pod" && e.InvolvedObject.Name == pod && e.InvolvedObject.UID != "" && e.Reason == reason {
			n++
		}
	}
	return n
}

// least is the role that the duty asks for, without that to delete, and what any operator does.
var least = []rbacv1.PolicyRule{
	{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch"}},
	{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list", "watch"}},
	{APIGroups: []string{"cilium.io"}, Resources: []string{"ciliumendpoints"}, Verbs: []string{"list", "watch"}},
	{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
}

var events = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}}

// NUNM-E13 and NUNM-E14, under the role of the original's chart: it allows neither a GET of Nodes and CiliumEndpoints,
// nor Events.
func TestRestarts(t *testing.T) {
	w := newWorld(t)
	w.pod("a", "dns", time.Minute, true)
	w.pod("b", "dns", time.Hour, true)
	w.pod("managed", "dns", time.Hour, true)
	w.endpoint("managed")
	w.pod("web", "web", time.Hour, true)
	w.pod("young", "dns", -time.Hour, true) // young for as long as the test takes
	stock := w.As("stock", stockchart.Role(t)...)
	o := w.StartKnowing("pods", func() *operatortest.Operator { return w.start(stock) })
	w.gone("b", "a")
	w.stay("managed", "web", "young", "agent")
	if got := strings.Join(w.deletes(), " "); got != "b a" {
		t.Errorf("deleted are %s", got)
	}
	operatortest.Eventually(t, "two restarts are counted", func() bool { return o.Metric("unmanaged_pods_restarted_total") == 2 })
	operatortest.Eventually(t, "none is unmanaged", func() bool { return o.Metric("unmanaged_pods") == 0 })
	w.CheckHealthy(o)
}

// NUNM-5: what is restarted is told on the pod.
func TestEvents(t *testing.T) {
	w := newWorld(t)
	w.pod("a", "dns", time.Minute, true)
	w.start(w.Kubeconfig())
	w.gone("a")
	operatortest.Eventually(t, "there is an Event", func() bool { return w.events("a", "UnmanagedPodRestarted") == 1 })
}

// NUNM-11: nothing is deleted, and no permission is needed for that.
func TestOnlyObserved(t *testing.T) {
	w := newWorld(t)
	w.pod("a", "dns", time.Minute, true)
	w.pod("b", "dns", time.Minute, true)
	observer := w.As("observer", append(least, events)...)
	o := w.StartKnowing("pods", func() *operatortest.Operator { return w.start(observer, "--enable-unmanaged-pod-observe-only") })
	operatortest.Eventually(t, "both are reported", func() bool {
		return w.events("a", "UnmanagedPod") == 1 && w.events("b", "UnmanagedPod") == 1 && o.Metric("unmanaged_pods") == 2
	})
	if d := w.deletes(); len(d) > 0 {
		t.Errorf("deleted are %v", d)
	}
	w.stay("a", "b")
	w.CheckHealthy(o)
}

// NUNM-10: a permission that is missing is reported once, and pods are counted all the same.
func TestRoleWithoutDelete(t *testing.T) {
	w := newWorld(t)
	w.pod("a", "dns", time.Minute, true)
	o := w.start(w.As("reader", least...))
	operatortest.Eventually(t, "it is degraded", func() bool {
		d := o.Degraded("nodes.unmanaged")
		return strings.Contains(d, "the role lacks delete pods") && strings.Contains(d, "no unmanaged pod is restarted")
	})
	w.pod("b", "dns", time.Minute, true)
	operatortest.Eventually(t, "both are counted", func() bool { return o.Metric("unmanaged_pods") == 2 })
	if d := w.deletes(); len(d) != 1 {
		t.Errorf("deletes of %v were sent", d)
	}
	warnings := 0
	for _, line := range o.Messages("") {
		if strings.HasPrefix(line, "warning") && strings.Contains(line, "lacks a permission") {
			warnings++
		}
	}
	if warnings != 1 {
		t.Errorf("it is logged %d times", warnings)
	}
	w.stay("a", "b")
}

// NUNM-12: what a late watch does not show is not absent.
func TestEndpointNotSeenYet(t *testing.T) {
	w := newWorld(t)
	o := w.start(w.Kubeconfig())
	w.pod("first", "dns", time.Minute, true)
	w.gone("first")
	hold := w.Proxy.HoldWatch(t, "ciliumendpoints", 0)
	w.endpoint("late")
	w.pod("late", "dns", time.Minute, true)
	operatortest.Eventually(t, "it looks unmanaged", func() bool { return o.Metric("unmanaged_pods") == 1 })
	w.pod("other", "dns", time.Minute, true)
	w.gone("other")
	w.stay("late")
	hold.Remove(t)
	operatortest.Eventually(t, "it is managed", func() bool { return o.Metric("unmanaged_pods") == 0 })
	if d := o.Degraded(""); d != "" {
		t.Errorf("it is degraded: %s", d)
	}
}

// NUNM-13: options that cannot be used name the flag.
func TestOptionsThatCannotBeUsed(t *testing.T) {
	for arg, flag := range map[string]string{
		"--pod-restart-selector=a in (b":        "pod-restart-selector",
		"--unmanaged-pod-watcher-interval=soon": "unmanaged-pod-watcher-interval",
		"--cilium-pod-labels=a==b==c":           "cilium-pod-labels",
		"--cilium-pod-namespace=Kube_System":    "cilium-pod-namespace",
		"--agent-not-ready-taint-key=a b":       "agent-not-ready-taint-key",
	} {
		_, err := operatortest.New(t, Cell, "", arg)
		if err == nil || !strings.Contains(err.Error(), "--"+flag) {
			t.Errorf("%s: %v", arg, err)
		}
	}
}
